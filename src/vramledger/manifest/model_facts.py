"""What a release keeps of a model beside the plan: formats, layers left unquantised, parameters, KV by heads."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from vramledger.errors import UnknownFormat
from vramledger.formats.kv import kv_format
from vramledger.formats.kv_rules import GGML_CELLS, ByToken, GgmlRows, Rule, stored
from vramledger.formats.kv_shapes import Heads, Latent, Shape
from vramledger.formats.weights import Dense, format_label
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import (
    CrossAttention,
    EncoderAttention,
    FullAttention,
    IndexedAttention,
    LatentAttention,
    MixtureOfExperts,
    SharedKvAttention,
    TokenMixer,
)
from vramledger.models.model import Model, tensor_group
from vramledger.models.quantization import StoredTensor
from vramledger.units import ceil_div


class FormatPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the model stores in one format."""

    group: str
    format: str
    elements: int
    stored_bytes: int


class UnquantisedLayers(msgspec.Struct, frozen=True, kw_only=True):
    """Matrices of one name that a quantised checkpoint keeps in plain elements, and the layers they are of (none: not
    in a layer)."""

    module: str
    format: str
    layers: Annotated[tuple[tuple[int, int], ...], Meta(description="First and last of each run.")]
    count: int
    stored_bytes: int


class QuantizationFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How the checkpoint stores its weights. `is_quantized` is whether any matrix is; `unquantised_layers` are those that
    are not, all of them."""

    summary: str
    is_quantized: bool
    formats: tuple[FormatPart, ...]
    unquantised_layers: tuple[UnquantisedLayers, ...]
    declared_kv_dtype: str | None
    declared_kv_source: str
    differences: Annotated[tuple[str, ...], Meta(description="Where config and headers disagree.")]


class MoeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of routed experts: all `num_experts` are resident, `top_k` run for a token."""

    num_layers: int
    num_experts: int
    top_k: int
    expert_parameters: int
    expert_bytes: Annotated[int, Meta(description="Bytes of all routed experts in the checkpoint.")]


class ParameterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Elements, tied tensors once, draft heads apart. Resident parameters decide the memory, active ones the speed."""

    resident: int
    active: int
    draft: int
    moe: MoeFacts | None


class KvHeads(msgspec.Struct, frozen=True, kw_only=True):
    """Layers whose tokens are cached alike. `replicas` is how many ranks of a tensor-parallel group hold the same head (a
    latent is held whole by all of them); bytes are of one token on one rank over these layers, null where the
    format is none of those whose arithmetic is here."""

    kind: str
    num_layers: int
    q_heads: int
    kv_heads: int
    kv_heads_per_rank: int
    replicas: int
    head_dim: int
    v_head_dim: int
    bytes_per_token: int | None
    by_query_heads_bytes_per_token: int | None


class KvFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The cache by heads and by format: elements, scales and what is kept in full precision (`residual_tokens`, null
    where it is not known) of one token on one rank, over all layers of the model."""

    dtype: str
    heads: tuple[KvHeads, ...]
    by_heads_bytes_per_token: int | None
    by_query_heads_bytes_per_token: int | None
    element_bytes_per_token: int | None
    scale_bytes_per_token: int | None
    residual_tokens: int | None


def quantization_facts(checkpoint: Checkpoint) -> QuantizationFacts:
    """Formats by part, and every matrix that stays in plain elements where others do not."""
    is_quantized = any(not isinstance(item.format, Dense) for item in checkpoint.stored)
    shares: dict[tuple[str, str], tuple[int, int]] = {}
    for item in checkpoint.stored:
        key = (tensor_group(item.tensor), format_label(item.format))
        elements, size = shares.get(key, (0, 0))
        shares[key] = (elements + item.tensor.total_elements, size + item.stored_bytes)
    return QuantizationFacts(
        summary=checkpoint.quantization,
        is_quantized=is_quantized,
        formats=tuple(
            FormatPart(group=group, format=name, elements=elements, stored_bytes=size)
            for (group, name), (elements, size) in sorted(shares.items())
        ),
        unquantised_layers=tuple(
            sorted(
                (_plain(item) for item in checkpoint.stored if _stays_plain(item)),
                key=lambda item: (item.module, item.layers),
            )
        )
        if is_quantized
        else (),
        declared_kv_dtype=checkpoint.declared_kv_dtype,
        declared_kv_source=checkpoint.declared_kv_source,
        differences=checkpoint.differences,
    )


def _stays_plain(item: StoredTensor) -> bool:
    return len(item.tensor.shape) > 1 and isinstance(item.format, Dense)


def _plain(item: StoredTensor) -> UnquantisedLayers:
    return UnquantisedLayers(
        module=item.tensor.module,
        format=format_label(item.format),
        layers=_runs(item.tensor.layers),
        count=item.tensor.repetitions,
        stored_bytes=item.stored_bytes,
    )


def _runs(indices: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return tuple(runs)


def parameter_facts(checkpoint: Checkpoint) -> ParameterFacts:
    """Resident and active parameters, and the experts that make the difference."""
    model = checkpoint.model
    counts = model.parameter_counts()
    mixtures = [m.channel_mixer for m in model.layers if isinstance(m.channel_mixer, MixtureOfExperts)]
    moe = None
    if mixtures:
        experts = [item for item in checkpoint.stored if tensor_group(item.tensor) == "experts"]
        moe = MoeFacts(
            num_layers=len(mixtures),
            num_experts=max(mixture.num_experts for mixture in mixtures),
            top_k=max(mixture.top_k for mixture in mixtures),
            expert_parameters=sum(item.tensor.total_elements for item in experts if item.tensor.parameter),
            expert_bytes=sum(item.stored_bytes for item in experts),
        )
    return ParameterFacts(resident=counts.total, active=counts.active, draft=counts.draft, moe=moe)


def kv_facts(model: Model, dtype: str, tp: int) -> KvFacts:
    """What the heads of the model's layers cache of a token in the format `dtype` on one of `tp` ranks.

    Rule: KV heads are cut by tp, repeated where there are fewer than ranks; a latent is whole on each (vLLM's
    QKVParallelLinear and MLA cache spec, SGLang's and TensorRT-LLM's the same).
    """
    rule = _rule(dtype, model)
    alike: dict[TokenMixer, int] = {}
    for mixer in model.token_mixers:
        if _caches(mixer):
            alike[mixer] = alike.get(mixer, 0) + 1
    heads = tuple(_heads(mixer, count, rule, tp) for mixer, count in alike.items())
    sides = [_sides(rule, _shape(mixer, tp), count) for mixer, count in alike.items()]
    known = [side for side in sides if side is not None] if all(_exact(mixer) for mixer in alike) else []
    is_known = bool(known) and len(known) == len(sides)
    return KvFacts(
        dtype=dtype,
        heads=heads,
        by_heads_bytes_per_token=_total([item.bytes_per_token for item in heads]),
        by_query_heads_bytes_per_token=_total([item.by_query_heads_bytes_per_token for item in heads]),
        element_bytes_per_token=sum(side[0] for side in known) if is_known else None,
        scale_bytes_per_token=sum(side[1] for side in known) if is_known else None,
        # Neither vLLM's formats nor GGML's keep a window of tokens in full precision.
        residual_tokens=None if rule is None else 0,
    )


def _caches(mixer: TokenMixer) -> bool:
    return isinstance(mixer, FullAttention | LatentAttention) and not isinstance(
        mixer, SharedKvAttention | EncoderAttention | CrossAttention
    )


def _exact(mixer: TokenMixer) -> bool:
    """Whether keys and values (or the latent) are all that the layer caches of a token: an indexer keeps keys beside."""
    return not isinstance(mixer, IndexedAttention) and getattr(mixer, "indexer", None) is None


def _rule(dtype: str, model: Model) -> Rule | None:
    key, _, value = dtype.partition("/")
    try:
        return ByToken(kind=kv_format(key, model.dtype))
    except UnknownFormat:
        pass
    try:
        rule = GgmlRows(key_type=key, value_type=value or key)
        stored(rule, Heads(kv_heads=32, head_dim=256, v_head_dim=256), GGML_CELLS)
    except (UnknownFormat, ValueError, KeyError):
        return None
    return rule


def _shape(mixer: TokenMixer, tp: int, *, by_query_heads: bool = False) -> Shape | None:
    match mixer:
        case LatentAttention():
            return Latent(kv_lora_rank=mixer.kv_lora_rank, rope_dim=mixer.rope_dim)
        case FullAttention():
            heads = mixer.q_heads if by_query_heads else mixer.kv_heads
            return Heads(kv_heads=ceil_div(heads, tp), head_dim=mixer.head_dim, v_head_dim=mixer.v_head_dim)
        case _:
            return None


def _sides(rule: Rule | None, shape: Shape | None, count: int) -> tuple[int, int] | None:
    """Bytes of elements and of what lies beside them, of a token over `count` layers; None where they cannot be told."""
    if rule is None or shape is None:
        return None
    tokens = GGML_CELLS if isinstance(rule, GgmlRows) else 1
    try:
        found = stored(rule, shape, tokens)
    except UnknownFormat:
        return None
    packed = found.key.packed_bytes + found.value.packed_bytes
    return packed * count // tokens, (found.bytes - packed) * count // tokens


def _heads(mixer: TokenMixer, count: int, rule: Rule | None, tp: int) -> KvHeads:
    sides = _sides(rule, _shape(mixer, tp), count) if _exact(mixer) else None
    wide = _sides(rule, _shape(mixer, tp, by_query_heads=True), count) if _exact(mixer) else None
    if isinstance(mixer, LatentAttention):
        return KvHeads(
            kind="mla",
            num_layers=count,
            q_heads=mixer.q_heads,
            kv_heads=1,
            kv_heads_per_rank=1,
            replicas=tp,
            head_dim=mixer.kv_lora_rank + mixer.rope_dim,
            v_head_dim=0,
            bytes_per_token=None if sides is None else sum(sides),
            by_query_heads_bytes_per_token=None,
        )
    assert isinstance(mixer, FullAttention)
    per_rank = ceil_div(mixer.kv_heads, tp)
    return KvHeads(
        kind=type(mixer).__name__,
        num_layers=count,
        q_heads=mixer.q_heads,
        kv_heads=mixer.kv_heads,
        kv_heads_per_rank=per_rank,
        replicas=max(1, tp // mixer.kv_heads) if mixer.kv_heads else 1,
        head_dim=mixer.head_dim,
        v_head_dim=mixer.v_head_dim,
        bytes_per_token=None if sides is None else sum(sides),
        by_query_heads_bytes_per_token=None if wide is None else sum(wide),
    )


def _total(sizes: list[int | None]) -> int | None:
    return None if not sizes or None in sizes else sum(size for size in sizes if size is not None)
