"""From bytes for KV to blocks, the token line and the concurrency line, as a version prints them.

Source: vllm v1/core/kv_cache_utils.py (get_max_concurrency_for_kv_cache_config, _report_kv_cache_config,
check_enough_kv_cache_memory); kv_cache_planning.py in 0.33.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from math import gcd

from msgspec import Struct

from vramledger.engines.vllm.kv_groups import Group, Layout
from vramledger.engines.vllm.kv_packed import Packing
from vramledger.engines.vllm.kv_specs import KvKind, KvSpec
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.states import recurrent_mode
from vramledger.units import ceil_div


class Capacity(Struct, frozen=True, kw_only=True):
    """What the engine prints for `num_blocks` blocks."""

    num_blocks: int
    tokens: int
    max_concurrency: float


def request_blocks(spec: KvSpec, context_len: int, settings: Settings) -> int:
    """Blocks of one group that a request of `context_len` tokens may hold at most (0 tokens: 0 blocks)."""
    if context_len <= 0:
        return 0
    match spec.kind:
        case KvKind.WINDOW | KvKind.MLA_WINDOW | KvKind.COMPRESSOR_STATE:
            extra = 0
            if settings.version.since(31) and settings.num_speculative_tokens > 1:
                extra = settings.num_speculative_tokens - 1
            kept = spec.window - 1 + extra + settings.in_flight_steps * settings.max_tokens
            return ceil_div(min(kept, context_len), spec.block_size) + 1
        case KvKind.CHUNKED:
            kept = spec.chunk + settings.in_flight_steps * settings.max_tokens
            return ceil_div(min(kept, context_len), spec.block_size)
        case KvKind.RECURRENT:
            return _state_blocks(spec, context_len, settings)
        case KvKind.CROSS:
            return ceil_div(settings.max_tokens, spec.block_size)
        case _:
            plan = settings.plan
            shards = (
                plan.dcp * plan.pcp
                if settings.version.since(12) and not settings.version.since(26)
                else plan.dcp
            )
            return ceil_div(ceil_div(context_len, shards), spec.block_size)


def _state_blocks(spec: KvSpec, context_len: int, settings: Settings) -> int:
    mode, spec_tokens = recurrent_mode(settings), settings.num_speculative_tokens
    if mode == "align":
        return 2 + spec_tokens + spec.checkpoint_blocks
    if mode == "all":
        return ceil_div(context_len, spec.block_size) + spec_tokens
    return 1 + spec_tokens


def blocks_per_request(layout: Layout, context_len: int, settings: Settings) -> int:
    """Pool blocks one request of `context_len` may hold over all groups."""
    return sum(count * request_blocks(spec, context_len, settings) for spec, count in layout.distinct)


def capacity(layout: Layout, num_blocks: int, settings: Settings) -> Capacity:
    """The token and concurrency lines for a pool of `num_blocks`."""
    context = settings.context_len
    need = blocks_per_request(layout, context, settings)
    if not need or num_blocks <= 0:
        return Capacity(num_blocks=max(num_blocks, 0), tokens=0, max_concurrency=0.0)
    version = settings.version
    block_size = layout.block_size
    shards = token_shards(settings)
    if not settings.v1 or not version.since(9):
        tokens = num_blocks * block_size
        return Capacity(num_blocks=num_blocks, tokens=tokens, max_concurrency=tokens / context)
    concurrency = num_blocks / _concurrency_blocks(layout, context, settings)
    if version.since(20):
        return Capacity(num_blocks=num_blocks, tokens=int(concurrency * context), max_concurrency=concurrency)
    tokens = num_blocks // len(layout.groups) * block_size * shards
    return Capacity(num_blocks=num_blocks, tokens=tokens, max_concurrency=concurrency)


def _concurrency_blocks(layout: Layout, context_len: int, settings: Settings) -> int:
    """Blocks the concurrency line counts for one request: before 0.27 a request's bytes in the first group's
    blocks, which differs from its blocks where groups are not equally wide."""
    if layout.packing not in (Packing.TUPLES, Packing.SLOTS):
        return blocks_per_request(layout, context_len, settings)
    used = sum(
        request_blocks(group.spec, context_len, settings) * group.page_sum() for group in layout.groups
    )
    return ceil_div(used, layout.groups[0].page_sum())


def token_shards(settings: Settings) -> int:
    """What versions before 0.20 multiply the token line by."""
    plan, version = settings.plan, settings.version
    if version.since(12):
        return plan.dcp * plan.pcp
    return plan.dcp if version.since(10, 2) else 1


def tokens_rule(settings: Settings) -> str:
    """How this version turns blocks into the token line, in words."""
    version = settings.version
    if not settings.v1:
        return "V0 prints blocks; tokens = blocks x block size"
    if not version.since(9):
        return "tokens = blocks x block size"
    if not version.since(20):
        return "tokens = blocks // groups x smallest block size: what is left if every group kept all tokens"
    return "tokens = maximum concurrency x max_model_len: what the engine admits by, at this context length"


def unusable_blocks(settings: Settings) -> int:
    """Blocks the start-up check leaves out: the null block, from 0.29."""
    return 1 if settings.version.since(29) else 0


def usable_bytes(available_bytes: int, bytes_per_block: int, settings: Settings) -> int:
    """Bytes the start-up check compares with."""
    return available_bytes - bytes_per_block * unusable_blocks(settings)


def context_step(layout: Layout) -> int:
    """Tokens by which a need can grow at once: it steps up just after multiples of this."""
    return gcd(*(spec.block_size for spec, _ in layout.distinct))


def longest_context(
    need_bytes: Callable[[int], int],
    available_bytes: int,
    bytes_per_block: int,
    settings: Settings,
    limit: int,
    *,
    step: int = 1,
) -> int:
    """The largest context of at most `limit` whose need fits, 0 where not even one token does.

    `need_bytes` never falls and grows only just after multiples of `step` (see `context_step`).
    """
    usable = usable_bytes(available_bytes, bytes_per_block, settings)
    above = need_bytes(limit)
    if above <= usable:
        return limit
    low, high, below = 0, ceil_div(limit, step), 0  # in steps: `low` fits, `high` does not
    while high - low > _NEAR_STEPS and usable >= 0:
        # Needs grow nearly evenly: this far to either side of a chord's crossing mostly encloses the true one.
        chord = low + (high - low) * (usable - below) // (above - below)
        for probe in (chord - _NEAR_STEPS // 2, chord + _NEAR_STEPS // 2, (low + high) // 2):
            middle = min(max(probe, low + 1), high - 1)
            need = need_bytes(middle * step)
            if need <= usable:
                low, below = middle, need
            else:
                high, above = middle, need
            if high - low <= _NEAR_STEPS:
                break
    return (
        low + bisect_right(range(low + 1, high), usable, key=lambda steps: need_bytes(steps * step))
    ) * step


_NEAR_STEPS = 4


def steady_blocks(group: Group, context_len: int, settings: Settings) -> int:
    """Blocks a sequence of `context_len` holds once its window has slid and no prompt is in flight."""
    spec = group.spec
    if spec.kind is KvKind.CROSS and spec.max_tokens:
        return ceil_div(spec.max_tokens, spec.block_size)
    if spec.kind in (KvKind.WINDOW, KvKind.MLA_WINDOW, KvKind.COMPRESSOR_STATE):
        return min(
            ceil_div(min(spec.window, context_len), spec.block_size) + 1,
            ceil_div(context_len, spec.block_size),
        )
    if spec.kind is KvKind.CHUNKED:
        return ceil_div(min(spec.chunk, context_len), spec.block_size)
    return request_blocks(spec, context_len, settings)
