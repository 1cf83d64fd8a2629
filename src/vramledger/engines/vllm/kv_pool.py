"""The KV pool of a vLLM instance: blocks over all ranks, and every figure that follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from vramledger.engines.vllm.budget import RankTerms
from vramledger.engines.vllm.kv_budget import (
    blocks_per_request,
    capacity,
    context_step,
    longest_context,
    request_blocks,
    steady_blocks,
    tokens_rule,
)
from vramledger.engines.vllm.kv_groups import Group, Layout
from vramledger.engines.vllm.kv_specs import KvKind
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.states import recurrent_mode
from vramledger.formats.kv import KvFormat
from vramledger.ledger import ByteRange
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPart, KvPool


def kv_pool(
    layout: Layout,
    settings: Settings,
    terms: Sequence[RankTerms],
    available: Sequence[ByteRange],
    kind: KvFormat,
    *,
    limit: int,
) -> KvPool | None:
    """The pool as the engine lays it out, None for a model that keeps no KV.

    `limit` is the model's own longest context, which bounds the longest that fits.
    """
    if not layout.groups:
        return None
    override = settings.flags.num_gpu_blocks_override
    blocks = (
        _num_blocks(layout, terms, available) if override is None else IntRange(override, override, override)
    )
    context = settings.context_len
    lines = [capacity(layout, count, settings) for count in (blocks.low, blocks.expected, blocks.high)]
    widest = max(terms, key=lambda item: item.bytes_per_block)
    per_block = widest.bytes_per_block
    longest = [
        min(
            _longest(layout, settings, item, count * item.bytes_per_block, max(context, limit))
            for item in terms
        )
        for count in (blocks.low, blocks.expected, blocks.high)
    ]
    steady = sum(steady_blocks(group, context, settings) for group in layout.groups)
    steady_bytes = steady * per_block
    return KvPool(
        bytes=_scaled(blocks, per_block),
        groups=tuple(
            KvGroup(
                kind=group.spec.kind.value,
                num_layers=sum(member.layer in widest.kind.kv_layers for member in group.members),
                block_size=group.spec.block_size,
                page_bytes=group.spec.page_bytes,
                blocks_per_request=request_blocks(group.spec, context, settings),
                padding_layers=group.padding_layers,
                parts=_parts(group, widest.kind.kv_layers),
                window_tokens=group.spec.window or group.spec.chunk or None,
                keeps_states=group.spec.kind is KvKind.RECURRENT and recurrent_mode(settings) != "none",
            )
            for group in layout.groups
        ),
        bytes_per_block=per_block,
        bytes_per_token=_bytes_per_token(layout, widest),
        state_bytes_per_sequence=_state_bytes(layout, widest),
        block_size=layout.block_size,
        num_blocks=blocks,
        tokens=IntRange(*(line.tokens for line in lines)),
        max_concurrency=FloatRange(*(line.max_concurrency for line in lines)),
        context_len=context,
        longest_context=IntRange(*longest),
        tokens_rule=tokens_rule(settings),
        admission_bytes_per_request=per_block * blocks_per_request(layout, context, settings),
        steady_bytes_per_request=steady_bytes,
        steady_concurrency=FloatRange(
            *(count / steady if steady else 0.0 for count in (blocks.low, blocks.expected, blocks.high))
        ),
        dtype=kind.name,
    )


def _parts(group: Group, stage: range) -> tuple[KvPart, ...]:
    counts = Counter(member.spec for member in group.members if member.layer in stage)
    return tuple(
        KvPart(kind=spec.kind.value, num_layers=count, page_bytes=spec.page_bytes)
        for spec, count in counts.items()
    )


def _num_blocks(layout: Layout, terms: Sequence[RankTerms], available: Sequence[ByteRange]) -> IntRange:
    """Blocks of the pool: the minimum over kinds of rank, each with its own stage's block."""
    counts = []
    for item, room in zip(terms, available, strict=True):
        per_block = item.bytes_per_block
        if per_block:
            counts.append([max(end, 0) // per_block for end in (room.low, room.expected, room.high)])
    if not counts:
        return IntRange(1, 1, 1)
    low, expected, high = (min(column) for column in zip(*counts, strict=True))
    return IntRange(low, expected, high)


def _scaled(count: IntRange, factor: int) -> IntRange:
    return IntRange(count.low * factor, count.expected * factor, count.high * factor)


def _need_bytes(layout: Layout, settings: Settings, item: RankTerms, context_len: int) -> int:
    """What the start-up check asks for a request of `context_len` on one rank: whole pool blocks since 0.14,
    each layer's own pages before."""
    if settings.version.since(14):
        return item.bytes_per_block * blocks_per_request(layout, context_len, settings)
    return sum(
        member.spec.page_bytes * request_blocks(group.spec, context_len, settings)
        for group in layout.groups
        for member in group.members
        if member.layer in item.kind.kv_layers
    )


def fit_context(
    layout: Layout, settings: Settings, terms: Sequence[RankTerms], available: Sequence[ByteRange]
) -> Settings:
    """`--max-model-len auto`: the longest context that every rank's expected memory holds, at least one token."""
    fitted = min(
        _longest(layout, settings, item, room.expected, settings.context_len)
        for item, room in zip(terms, available, strict=True)
    )
    return replace(settings, context_len=max(fitted, 1))


def _longest(layout: Layout, settings: Settings, item: RankTerms, available_bytes: int, limit: int) -> int:
    return longest_context(
        partial(_need_bytes, layout, settings, item),
        available_bytes,
        item.bytes_per_block,
        settings,
        limit,
        step=context_step(layout),
    )


def _bytes_per_token(layout: Layout, item: RankTerms) -> int:
    """Bytes one more token costs on a rank in every layer that keeps it, windows included, states not."""
    per_token = 0
    for group in layout.groups:
        if group.spec.kind in (KvKind.RECURRENT, KvKind.COMPRESSOR_STATE):
            continue
        for member in group.members:
            if member.layer in item.kind.kv_layers:
                per_token += member.spec.content_bytes // member.spec.block_size
    return per_token


def _state_bytes(layout: Layout, item: RankTerms) -> int:
    return sum(
        member.spec.content_bytes
        for group in layout.groups
        if group.spec.kind is KvKind.RECURRENT
        for member in group.members
        if member.layer in item.kind.kv_layers
    )
