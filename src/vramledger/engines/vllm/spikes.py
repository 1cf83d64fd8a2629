"""What requests ask for that the profile run does not see: peaks beyond the room it left.

Source: vllm v1/worker/gpu_model_runner.py (`_get_prompt_logprobs_dict`), v1/sample/sampler.py, sample/ops/penalties.py,
model_executor/layers/utils.py (V1 runner); v1/worker/gpu/sample/prompt_logprob.py, logprob.py, sampler.py (V2), read from
0.8.0 to 0.33.0. The dummy run has neither log-probabilities nor penalties nor grammars, and its sampler is greedy on the
V2 runner up to 0.32. The room that it left is the activation peak; what is above lies in the share that the engine does
not take, and where there is none the step ends in an out-of-memory error.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.logits import bitmask_bytes, log_softmax_bytes, top_entries_bytes
from vramledger.engines.requests import WHOLE_VOCABULARY, Requests
from vramledger.engines.vllm.activation import ActivationPeak, logit_columns
from vramledger.engines.vllm.extras import Extra, extra
from vramledger.engines.vllm.sampler import TRITON, SamplerPath, gathered_bytes, profiled_path, serving_path
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.evidence import calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, Lifetime, Owner, Phase
from vramledger.models.model import Model

PREFILL = frozenset({Phase.PREFILL, Phase.RECOVERY})
DECODE = frozenset({Phase.DECODE})
BEYOND_PEAK = " beyond the profiled peak"
CHUNK_ROWS = 1024  # CHUNK_SIZE of prompt_logprob.py
COMPILED_RANKS_SINCE = 10
PENALTY_KERNEL_SINCE = 9
DEFAULT_MAX_LOGPROBS = 20


class Spike(Struct, frozen=True, kw_only=True):
    """Bytes alive at one moment of a step, the hidden states and encoder outputs apart."""

    name: str
    phases: frozenset[Phase]
    bytes: int
    source: str
    formula: str


def spike_extras(
    model: Model, settings: Settings, kind: RankKind, device: Device, activation: ActivationPeak
) -> list[Extra]:
    """Each moment that passes the profiled peak, with what it passes it by; nothing for ranks that make no logits."""
    if not kind.is_last or model.is_pooling or device.vendor == "cpu":
        return []
    kept = activation.hidden_bytes + activation.encoder_cache_bytes
    room = activation.peak_bytes
    beyond: dict[frozenset[Phase], tuple[int, Spike]] = {}
    for spike in _spikes(model, settings, device):
        excess = kept + spike.bytes - room
        if excess > 0 and excess > beyond.get(spike.phases, (0, spike))[0]:
            beyond[spike.phases] = (excess, spike)
    return [
        extra(
            Owner.ACTIVATION, spike.name + BEYOND_PEAK, phases,
            # A greedy batch takes none of it where nobody asked for more than sampling.
            ByteRange(0 if spike.name == SAMPLING else excess, excess, excess),
            calculated(spike.source, f"hidden states {kept} + {spike.formula} - profiled peak {room}"),
            lifetime=Lifetime.ITERATION,
            charged=False,
        )
        for phases, (excess, spike) in beyond.items()
    ]  # fmt: skip


SAMPLING = "sampling with top-k and top-p"


def _spikes(model: Model, settings: Settings, device: Device) -> list[Spike]:
    if not settings.v1:
        return []
    asked = settings.flags.requests
    path, vocab = serving_path(settings, device), logit_columns(model, settings)
    out = []
    if asked.prompt_logprobs is not None:
        prompt = _prompt_v2 if settings.v2_runner else _prompt_v1
        out.append(prompt(settings, asked.prompt_logprobs, vocab))
    if asked.logprobs is not None or asked.penalties or asked.grammars or asked.beams > 1:
        out.append(_step(settings, asked, path, vocab))
    elif profiled_path(settings, device) is not path:
        size = path.bytes_per_logit + gathered_bytes(settings)
        rows = settings.max_rows
        out.append(
            Spike(
                name=SAMPLING,
                phases=DECODE,
                bytes=size * rows * vocab,
                source="vllm v1/worker/gpu/sample/sampler.py: the dummy run is greedy up to 0.32",
                formula=f"{size} B x R {rows} x V {vocab}",
            )
        )
    return out


def _prompt_v1(settings: Settings, count: int, vocab: int) -> Spike:
    """Log-probabilities of every prompt token of the step at once: logits in the model's type, a log-softmax in fp32,
    for which torch first makes an fp32 copy of bfloat16 (a copy alone with `--logprobs-mode raw_logits`), and up to 0.9
    a Boolean for each logit to count ranks, when the copy is gone."""
    rows = min(settings.max_tokens, settings.context_len)
    ranks = 0 if settings.version.since(COMPILED_RANKS_SINCE) else 1
    logits = settings.dtype.bits // 8
    scores = 4 if settings.flags.logprobs_mode.endswith("logits") else log_softmax_bytes(settings.dtype)
    size = logits + max(gathered_bytes(settings), scores, 4 + ranks)
    returned = top_entries_bytes(rows, vocab if count == WHOLE_VOCABULARY else count, index_bytes=8)
    return Spike(
        name="log-probabilities of a prompt",
        phases=PREFILL,
        bytes=size * rows * vocab + returned,
        source="vllm v1/worker/gpu_model_runner.py _get_prompt_logprobs_dict: all prompt tokens of a step, no chunks",
        formula=f"{size} B x {rows} prompt tokens x V {vocab} + returned {returned}",
    )


def _prompt_v2(settings: Settings, count: int, vocab: int) -> Spike:
    """Logits of 1024 prompt tokens at a time; what is returned stays on the device until the prompt ends."""
    rows = min(settings.max_tokens, settings.context_len)
    chunk = min(rows, CHUNK_ROWS)
    size = settings.dtype.bits // 8 + gathered_bytes(settings)
    columns = vocab if count == WHOLE_VOCABULARY else count
    # Chunks of ids (int64) and scores (fp32) are gathered in lists and then joined into one tensor more.
    kept = top_entries_bytes(settings.context_len, columns, index_bytes=8)
    joined = top_entries_bytes(rows, columns, index_bytes=8)
    sorting = chunk * columns * (8 + settings.dtype.bits // 8)
    return Spike(
        name="log-probabilities of a prompt",
        phases=PREFILL,
        bytes=size * chunk * vocab + sorting + kept + joined,
        source="vllm v1/worker/gpu/sample/prompt_logprob.py: chunks of 1024 prompt tokens",
        formula=(
            f"{size} B x {chunk} prompt tokens x V {vocab} + largest {columns} of each {sorting} + returned "
            f"{kept} for {settings.context_len} tokens, {joined} joined"
        ),
    )


def _step(settings: Settings, asked: Requests, path: SamplerPath, vocab: int) -> Spike:
    """The sampler of a full batch with what is asked for on top."""
    rows = settings.max_rows
    logits = path.logits + gathered_bytes(settings)
    held, names = 0, []
    count = 2 * asked.beams if asked.beams > 1 else asked.logprobs
    mode = settings.flags.logprobs_mode
    if count is not None:
        names.append("log-probabilities")
        if mode.startswith("processed") and path.name == "flashinfer":
            path = TRITON  # FlashInfer does not hand out what it filtered
        if not settings.v2_runner and mode != "processed_logits":
            held += 4
    sampling = path.scratch
    penalties = 0
    if asked.penalties and not settings.v2_runner:
        names.append("penalties")
        # Two int64 counts and two masks of every token, a product in fp32; the logits' fp32 copy is there.
        penalties = 4 + 2 * 8 + 2 * 1 + 4
        if not settings.version.since(PENALTY_KERNEL_SINCE):
            penalties += 8  # repeated penalties and what torch.where makes of them
    bitmask = 0
    if asked.grammars and not settings.v2_runner:
        names.append("grammars")
        bitmask = bitmask_bytes(rows * (1 + settings.num_speculative_tokens), vocab)
    size = logits + held + max(sampling, penalties)
    columns = vocab if count == WHOLE_VOCABULARY else count
    returned = 0 if columns is None else top_entries_bytes(rows, columns, index_bytes=8)
    formula = (
        f"({logits} logits + {held} log-probabilities + max({sampling} sampling, {penalties} penalties)) B"
    )
    return Spike(
        name=" and ".join(names) or "sampling",
        phases=DECODE,
        bytes=size * rows * vocab + bitmask + returned,
        source="vllm v1/sample/sampler.py, layers/utils.py apply_penalties"
        if not settings.v2_runner
        else "vllm v1/worker/gpu/sample/sampler.py, logprob.py",
        formula=f"{formula} x R {rows} x V {vocab} + grammar bitmask {bitmask} + returned {returned}",
    )


def max_logprobs(settings: Settings, vocab: int) -> int:
    """How many log-probabilities a request may ask for."""
    limit = settings.flags.max_logprobs
    if limit == WHOLE_VOCABULARY:
        return vocab
    return DEFAULT_MAX_LOGPROBS if limit is None else limit
