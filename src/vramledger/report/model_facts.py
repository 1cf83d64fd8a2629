"""What a model is, worked out once for the page and for the published document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import fields

from vramledger.errors import UnknownFormat, VramledgerError
from vramledger.formats.kv import KvFormat, kv_bytes, kv_format, latent_bytes
from vramledger.formats.weights import format_label
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import (
    RECURRENT,
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    EncoderAttention,
    FullAttention,
    IndexedAttention,
    LatentAttention,
    Layer,
    SharedKvAttention,
    SlidingWindowAttention,
    SparseIndexer,
)
from vramledger.models.model import Model, ParameterCounts, tensor_group
from vramledger.units import ceil_div

KV_FORMATS = ("auto", "fp8", "nvfp4", "fp8_ds_mla")

_KINDS = {
    "FullAttention": "full_attention",
    "SlidingWindowAttention": "sliding_window",
    "ChunkedAttention": "chunked_local",
    "CrossAttention": "cross_attention",
    "EncoderAttention": "encoder_attention",
    "SharedKvAttention": "shares_kv",
    "IndexedAttention": "indexed_attention",
    "LatentAttention": "mla",
    "CompressedAttention": "compressed_mla",
    "Mamba1": "mamba1",
    "Mamba2": "mamba2",
    "GatedDeltaNet": "gated_delta_net",
    "KimiDeltaAttention": "kimi_delta_attention",
    "LinearAttention": "linear_attention",
    "ShortConvolution": "short_convolution",
    "RwkvMixer": "rwkv",
    "DenseMlp": "dense_mlp",
    "MixtureOfExperts": "mixture_of_experts",
}


class Part(Struct, frozen=True, kw_only=True):
    """A mixer by kind, with its dimensions by name."""

    kind: str
    dimensions: tuple[tuple[str, int], ...]


class LayerKind(Struct, frozen=True, kw_only=True):
    """Layers that are alike. `runs` are first and last index of each unbroken run; `stack` is decoder, encoder
    or draft."""

    stack: str
    runs: tuple[tuple[int, int], ...]
    num_layers: int
    token_mixers: tuple[Part, ...]
    channel_mixer: Part | None


class FormatShare(Struct, frozen=True, kw_only=True):
    """What one part of the model stores in one format."""

    group: str
    format: str
    elements: int
    stored_bytes: int


class KvCost(Struct, frozen=True, kw_only=True):
    """Bytes one token adds over all decoder layers, unsplit. `windowed_bytes` of them stop growing at the
    window or chunk; `dtype` is the cache's element format."""

    dtype: str
    bytes_per_token: int
    windowed_bytes: int


class ModelFacts(Struct, frozen=True, kw_only=True):
    """`state_bytes_per_sequence` is the constant state of recurrent layers, None where it could not be sized."""

    layers: tuple[LayerKind, ...]
    parameters: ParameterCounts
    formats: tuple[FormatShare, ...]
    kv_costs: tuple[KvCost, ...]
    state_bytes_per_sequence: int | None


def model_facts(checkpoint: Checkpoint) -> ModelFacts:
    """Layers by kind, parameters, formats by part, and what a token and a sequence take in a cache."""
    model = checkpoint.model
    return ModelFacts(
        layers=(
            *_layer_kinds("decoder", model.layers),
            *_layer_kinds("encoder", model.encoder_layers),
            *_layer_kinds("draft", model.draft_layers),
        ),
        parameters=model.parameter_counts(),
        formats=_formats(checkpoint),
        kv_costs=kv_costs(model),
        state_bytes_per_sequence=state_bytes(model),
    )


def _layer_kinds(stack: str, layers: Sequence[Layer]) -> Iterable[LayerKind]:
    alike: dict[tuple[object, object], list[Layer]] = {}
    for layer in layers:
        mixers = tuple(_without_source(mixer) for mixer in layer.token_mixers)
        alike.setdefault((mixers, layer.channel_mixer), []).append(layer)
    for members in alike.values():
        first = members[0]
        yield LayerKind(
            stack=stack,
            runs=_runs([layer.index for layer in members]),
            num_layers=len(members),
            token_mixers=tuple(_part(mixer) for mixer in first.token_mixers),
            channel_mixer=_part(first.channel_mixer) if first.channel_mixer is not None else None,
        )


def _without_source(mixer: object) -> object:
    """Layers that read different layers' KV are still one kind."""
    if isinstance(mixer, SharedKvAttention):
        return ("shares", mixer.q_heads, mixer.kv_heads, mixer.head_dim, mixer.v_head_dim)
    return mixer


def _part(mixer: object) -> Part:
    dimensions: list[tuple[str, int]] = []
    for item in fields(mixer):  # type: ignore[arg-type]
        value = getattr(mixer, item.name)
        if isinstance(value, SparseIndexer):
            dimensions += [("index_heads", value.heads), ("index_head_dim", value.head_dim)]
            dimensions.append(("index_top_k", value.top_k))
        elif isinstance(value, int) and item.name != "source_layer":
            dimensions.append((item.name, int(value)))
    name = type(mixer).__name__
    return Part(kind=_KINDS.get(name, name), dimensions=tuple(dimensions))


def _runs(indices: Sequence[int]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return tuple(runs)


def _formats(checkpoint: Checkpoint) -> tuple[FormatShare, ...]:
    shares: dict[tuple[str, str], tuple[int, int]] = {}
    for item in checkpoint.stored:
        key = (tensor_group(item.tensor), format_label(item.format))
        elements, size = shares.get(key, (0, 0))
        shares[key] = (elements + item.tensor.total_elements, size + item.stored_bytes)
    return tuple(
        FormatShare(group=group, format=name, elements=elements, stored_bytes=size)
        for (group, name), (elements, size) in shares.items()
    )


def kv_costs(model: Model) -> tuple[KvCost, ...]:
    """Bytes a token by cache format, for the formats that this model's layers can be kept in."""
    out: dict[str, KvCost] = {}
    for name in KV_FORMATS:
        try:
            kind = kv_format(name, model.dtype)
            sizes = [_token_bytes(mixer, kind) for mixer in model.token_mixers]
        except UnknownFormat:
            continue
        total = sum(size for size, _ in sizes)
        if total:
            windowed = sum(size for size, bounded in sizes if bounded)
            out[kind.name] = KvCost(dtype=kind.name, bytes_per_token=total, windowed_bytes=windowed)
    return tuple(out.values())


def _token_bytes(mixer: object, kind: KvFormat) -> tuple[int, bool]:
    """Bytes a token adds to one layer, and whether a window bounds them.

    Index keys of latent attention are 8-bit with an fp32 scale for every 128 (DeepSeek-V3.2's own), those of
    attention over plain keys have the cache's type. Raises UnknownFormat where the layer has no such cache.
    """
    match mixer:
        case SharedKvAttention() | EncoderAttention() | CrossAttention():
            return 0, False
        case LatentAttention():
            latent = latent_bytes(kind, tokens=1, kv_lora_rank=mixer.kv_lora_rank, rope_dim=mixer.rope_dim)
            return latent + _index_key_bytes(mixer.indexer), False
        case CompressedAttention():
            return _compressed_bytes(mixer, kind)
        case FullAttention():
            size = kv_bytes(
                kind, tokens=1, kv_heads=mixer.kv_heads, head_dim=mixer.head_dim, v_head_dim=mixer.v_head_dim
            )
            if isinstance(mixer, IndexedAttention):
                size += ceil_div(mixer.indexer.head_dim * kind.key_bits, 8)
            return size, isinstance(mixer, SlidingWindowAttention | ChunkedAttention)
        case _:
            return 0, False


def _index_key_bytes(indexer: SparseIndexer | None) -> int:
    if indexer is None or not indexer.keeps_keys:
        return 0
    return indexer.head_dim + 4 * ceil_div(indexer.head_dim, 128)


def _compressed_bytes(mixer: CompressedAttention, kind: KvFormat) -> tuple[int, bool]:
    """One state every `compress_ratio` tokens, rounded up; without a history only the window is kept."""
    state = latent_bytes(
        kind, tokens=1, kv_lora_rank=mixer.head_dim - mixer.rope_dim, rope_dim=mixer.rope_dim
    )
    if mixer.compress_ratio <= 1:
        return state, True
    return ceil_div(state + _index_key_bytes(mixer.indexer), mixer.compress_ratio), False


def state_bytes(model: Model, tp: int = 1) -> int | None:
    """State of all recurrent layers of one sequence on one of `tp` ranks, in the types vLLM keeps it in by default;
    None where it cannot be sized."""
    mixers = [mixer for mixer in model.token_mixers if isinstance(mixer, RECURRENT)]
    if not mixers:
        return 0
    from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
    from vramledger.engines.vllm.settings import resolve
    from vramledger.engines.vllm.states import recurrent_state
    from vramledger.engines.vllm.version import NEWEST
    from vramledger.hardware.catalogue import find_device

    try:
        settings = resolve(model, find_device("custom:80GiB"), NEWEST, ParallelPlan(tp=tp), VllmFlags())
        return sum(recurrent_state(mixer, model, settings).bytes for mixer in mixers)
    except VramledgerError:
        return None


def describe_part(part: Part) -> str:
    """ "full_attention: 32 q heads, 8 kv heads, head 128"."""
    dimensions = dict(part.dimensions)
    if part.kind == "dense_mlp":
        shape = "gated" if dimensions["gated"] else "plain"
        return f"dense_mlp: {dimensions['intermediate']:,} ({shape})"
    if part.kind == "mixture_of_experts":
        text = f"mixture_of_experts: {dimensions['top_k']} of {dimensions['num_experts']}"
        text += f" of {dimensions['intermediate']:,}"
        if dimensions["shared_intermediate"]:
            text += f", shared {dimensions['shared_intermediate']:,}"
        if dimensions["dense_intermediate"]:
            text += f", dense {dimensions['dense_intermediate']:,}"
        return text
    return f"{part.kind}: " + ", ".join(f"{name} {value:,}" for name, value in part.dimensions)
