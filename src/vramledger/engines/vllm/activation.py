"""The activation peak of the profile run on one rank.

Source: vllm v1/worker/gpu_model_runner.py and v1/worker/gpu/model_runner.py (`profile_run`, `_dummy_run`,
`_dummy_sampler_run`). One forward of T tokens, then the sampler on R rows; they do not overlap, except that
the hidden states are alive in both. Encoders for other modalities run first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.engines.layer_widths import channel_width, mixer_width
from vramledger.engines.partition import VOCAB_PADDING
from vramledger.engines.vllm.sampler import GREEDY, SamplerPath, gathered_bytes
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.ledger import ByteRange
from vramledger.models.mixers import CrossAttention
from vramledger.models.model import Model, Tower
from vramledger.units import ceil_div, round_up

LOW_PERCENT, HIGH_PERCENT = 92, 115
"""How far the derived model may be off: logs that print the peak are within 0.96 to 1.09 of it, encoders apart."""


def spread(size_bytes: int) -> ByteRange:
    """A derived figure with the model's own uncertainty."""
    return ByteRange(size_bytes * LOW_PERCENT // 100, size_bytes, size_bytes * HIGH_PERCENT // 100)


class ActivationPeak(Struct, frozen=True, kw_only=True):
    """Bytes at the moments that compete; `encoder_cache_bytes` stays alive through all but the encoder's own.

    `transient` are the workspaces within the forward's bytes, `scratch_bytes` what is not logits of the sampler's, which
    takes the path `sampler`.
    """

    forward_bytes: int
    sampler_bytes: int
    hidden_bytes: int
    draft_bytes: int
    encoder_bytes: int
    encoder_cache_bytes: int
    forward_formula: str
    sampler_formula: str
    transient: tuple[tuple[str, int], ...] = ()
    scratch_bytes: int = 0
    sampler: SamplerPath = GREEDY

    @property
    def moments(self) -> dict[str, int]:
        """Bytes alive at each moment, by name; the earlier of equals binds."""
        cache = self.encoder_cache_bytes
        return {
            "forward": cache + self.forward_bytes,
            "sampler": cache + self.hidden_bytes + self.sampler_bytes,
            "draft": cache + self.draft_bytes,
            "encoder": self.encoder_bytes,
        }

    @property
    def peak_bytes(self) -> int:
        return max(self.moments.values())

    @property
    def binding(self) -> str:
        moments = self.moments
        return max(moments, key=moments.__getitem__)

    @property
    def formula(self) -> str:
        """What binds, with its inputs."""
        cache = f" + encoder outputs {self.encoder_cache_bytes}" if self.encoder_cache_bytes else ""
        return {
            "forward": f"forward: {self.forward_formula}{cache}",
            "sampler": f"hidden states {self.hidden_bytes} + sampler {self.sampler_formula}{cache}",
            "draft": f"draft's forward {self.draft_bytes}{cache}",
            "encoder": f"encoder of the largest items and its output {self.encoder_bytes}",
        }[self.binding]


def activation_peak(
    model: Model,
    settings: Settings,
    kind: RankKind,
    *,
    path: SamplerPath = GREEDY,
    transient: Sequence[tuple[str, int]] = (),
    draft_bytes: int = 0,
) -> ActivationPeak:
    """The peak of one kind of rank. `path` is how the dummy run samples, `transient` are named workspaces that live
    through the forward (see `workspace`), `draft_bytes` a draft model's forward."""
    tokens, width = settings.max_tokens, model.hidden_size
    element = settings.dtype.bits // 8
    hidden = tokens * width * element
    layer_width = _widest_layer(model, settings, kind)
    forward = element * tokens * (3 * width + layer_width)
    formula = f"{element} B x T {tokens} x (3 x hidden {width} + widest layer {layer_width})"
    if model.towers and not settings.flags.language_model_only:
        forward += hidden
        formula += f" + inputs as embeddings {hidden}"
    if settings.plan.tp > 1:
        forward += hidden
        formula += f" + all-reduce out of place {hidden}"
    for name, size in transient:
        forward += size
        formula += f" + {name} {size}" if size else ""
    sampler, scratch, sampler_formula = 0, 0, "not on this stage"
    if kind.is_last:
        sampler, scratch, sampler_formula = sampler_peak(model, settings, path)
    encoder, cache = (0, 0)
    if kind.is_first and not settings.flags.language_model_only:
        encoder, cache = encoder_peak(model, settings)
    return ActivationPeak(
        forward_bytes=forward,
        sampler_bytes=sampler,
        hidden_bytes=hidden,
        draft_bytes=draft_bytes,
        encoder_bytes=encoder,
        encoder_cache_bytes=cache,
        forward_formula=formula,
        sampler_formula=sampler_formula,
        transient=tuple(part for part in transient if part[1]),
        scratch_bytes=scratch,
        sampler=path,
    )


def _widest_layer(model: Model, settings: Settings, kind: RankKind) -> int:
    """Elements a token needs beside three hidden states in the widest layer of the stage: gate, up and their
    product (3 I), or projections and attention output where those are wider."""
    tp = settings.plan.tp
    widest = 0
    seen: set[object] = set()
    for layer in model.layers:
        if layer.index not in kind.layers:
            continue
        for mixer in layer.token_mixers:
            if mixer not in seen:
                seen.add(mixer)
                widest = max(widest, mixer_width(mixer, tp) - model.hidden_size)
        channel = layer.channel_mixer
        if channel is not None and channel not in seen:
            seen.add(channel)
            widest = max(widest, channel_width(channel, tp))
    return widest


def sampler_peak(model: Model, settings: Settings, path: SamplerPath) -> tuple[int, int, str]:
    """Bytes of the sampler's dummy run, how many of them are no logits, and the formula. A pooling model's run pools
    every token in fp32 and normalises it into a copy (layers/pooler)."""
    if model.is_pooling:
        size = 2 * 4 * settings.max_tokens * model.hidden_size
        return (
            size,
            0,
            f"2 x 4 B x T {settings.max_tokens} x hidden {model.hidden_size}: tokens pooled, normalised",
        )
    rows = sampled_rows(model, settings)
    vocab = logit_columns(model, settings)
    size = path.bytes_per_logit + gathered_bytes(settings)
    return size * rows * vocab, path.scratch * rows * vocab, f"{size} B x R {rows} x V {vocab}"


def logit_columns(model: Model, settings: Settings) -> int:
    """Columns of a row of logits: the vocabulary, padded where ranks gather their shares."""
    return round_up(model.vocab_size, VOCAB_PADDING) if settings.plan.tp > 1 else model.vocab_size


def sampled_rows(model: Model, settings: Settings) -> int:
    """Rows of the sampler's dummy run: R, in V0 no more than largest items fit the batch (multimodal models)."""
    largest = max((tower.max_item_tokens for tower in model.towers), default=0)
    if settings.v1 or not largest or is_encoder_decoder(model) or settings.flags.language_model_only:
        return settings.max_rows
    return max(1, min(settings.max_rows, settings.max_tokens // largest))


def encoder_peak(model: Model, settings: Settings) -> tuple[int, int]:
    """Bytes of the largest batch of items through the widest tower, and of its output kept for the forward.

    Items fill max(T, largest item) tokens, at most max_num_seqs of them (V0 gives an encoder-decoder one for
    every sequence). A tower's layer holds its input values, three hidden states (one more for an all-reduce
    out of place) and the wider of the MLP's inner width twice and attention's projections.
    """
    peak = cache = 0
    element = settings.dtype.bits // 8
    for tower in model.towers:
        if not tower.max_item_tokens:
            continue
        budget = max(settings.max_tokens, tower.max_item_tokens)
        whole = budget // tower.max_item_tokens
        if not settings.version.since(10):
            whole = ceil_div(budget, tower.max_item_tokens)  # rounded up to 0.9 (v1 gpu_model_runner.py)
        items = max(1, min(whole, settings.max_num_seqs))
        if not settings.v1 and is_encoder_decoder(model):
            items = settings.max_num_seqs
        tokens = items * tower.max_item_tokens
        patches = tokens * max(tower.patches_per_token, 1)
        peak = max(peak, element * patches * _tower_width(tower, settings))
        cache = max(cache, element * tokens * model.hidden_size)
    return peak + cache, cache


def _tower_width(tower: Tower, settings: Settings) -> int:
    tp = settings.plan.tp if settings.flags.mm_encoder_tp_mode == "weights" else 1
    ways = tp if tower.num_heads % tp == 0 else 1
    states = 3 + tower.kept_hidden_states + (1 if ways > 1 else 0)
    inner = max(2 * tower.intermediate_size, 4 * tower.hidden_size) // ways
    return tower.input_elements_per_patch + states * tower.hidden_size + inner


def is_encoder_decoder(model: Model) -> bool:
    """Whether decoder layers attend to an encoder's output through a cache of their own."""
    return bool(model.encoder_layers) or model.has_mixer(CrossAttention)
