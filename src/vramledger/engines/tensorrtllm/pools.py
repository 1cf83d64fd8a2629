"""From the bytes left for KV to tokens, blocks and windows.

Source: tensorrt_llm/_torch/pyexecutor/resource_manager.py (`calculate_max_num_blocks`,
`calculate_max_num_blocks_for_vswa`, `adjust_window_sizes_for_vswa`, `_validate_and_adjust_attention_windows`),
kv_cache/kv_cache_manager_v2.py, cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp (`calculateMaxNumBlocks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.tensorrtllm.kv_layers import KvLayer
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.units import ceil_div

EXTRA_WINDOW_BLOCKS = 1
"""A sequence holds one block beyond its window, which may straddle the edge of a block (kSWAExtraBlock)."""


class WindowPool(Struct, frozen=True, kw_only=True):
    """The pool of the layers that share a window, on one rank. `token_bytes` are of one token in all of them."""

    window: int
    kind: str
    num_layers: int
    token_bytes: int
    blocks: int = 0
    host_blocks: int = 0

    def block_bytes(self, tokens_per_block: int) -> int:
        return self.token_bytes * tokens_per_block


class RankPools(Struct, frozen=True, kw_only=True):
    """Every pool of one rank. `max_tokens` is the figure before it became blocks, `reached_len` the longest request
    the engine allows with these pools, `state_slots` how many recurrent states of `state_bytes` are kept."""

    pools: tuple[WindowPool, ...]
    max_tokens: int
    reached_len: int
    state_slots: int
    state_bytes: int
    tokens_per_block: int

    @property
    def kv_bytes(self) -> int:
        return sum(pool.blocks * pool.block_bytes(self.tokens_per_block) for pool in self.pools)

    @property
    def states_bytes(self) -> int:
        return self.state_slots * self.state_bytes

    @property
    def host_bytes(self) -> int:
        return sum(pool.host_blocks * pool.block_bytes(self.tokens_per_block) for pool in self.pools)

    @property
    def binding(self) -> WindowPool:
        """The pool of the longest window, which full-length requests run out of."""
        return max(self.pools, key=lambda pool: pool.window)


def windows_of(layers: Sequence[KvLayer], settings: Settings) -> tuple[WindowPool, ...]:
    """Pools without blocks, by window: the flag's list repeated over the layers; in V2 the model's own windows; else
    one pool of the longest request for all. Shortest window first."""
    length, given = settings.asked_len, settings.flags.max_attention_window
    found: dict[int, list[KvLayer]] = {}
    for layer in layers:
        if not layer.token_bytes:
            continue
        if given is not None and layer.index >= 0:
            window = min(given[layer.index % len(given)], length)
        elif settings.uses_v2 and layer.window:
            window = min(layer.window, length)
        else:
            window = length
        found.setdefault(window, []).append(layer)
    return tuple(
        WindowPool(
            window=window,
            kind=_kind(members, window, length),
            num_layers=len(members),
            token_bytes=sum(member.token_bytes for member in members),
        )
        for window, members in sorted(found.items())
    )


def _kind(members: Sequence[KvLayer], window: int, length: int) -> str:
    if window < length:
        return "sliding_window"
    latent = [member.kind for member in members if member.kind.startswith("mla")]
    return latent[0] if latent else "full_attention"


def fill(layers: Sequence[KvLayer], settings: Settings, budget_bytes: int) -> RankPools:
    """The pools that `budget_bytes` (the share of free memory, or the user's own limit) gives one rank."""
    pools = windows_of(layers, settings)
    state = sum(layer.state_bytes for layer in layers)
    limit = settings.flags.max_gpu_total_bytes
    budget = max(min(budget_bytes, limit) if limit else budget_bytes, 0)
    if settings.uses_v2:
        found = _by_quota(pools, settings, budget, state)
    elif len(pools) > 1:
        found = _by_window(pools, settings, budget, state)
    else:
        found = _one_pool(pools, settings, budget, state)
    return _reached(found, settings)


def _slots(settings: Settings, tokens: int, state: int) -> int:
    """A live state for every request in flight; with reuse a snapshot every so many tokens."""
    if not state:
        return 0
    live = settings.max_batch * settings.flags.pp_size
    return live + tokens // settings.state_interval if keeps_snapshots(settings) else live


def keeps_snapshots(settings: Settings) -> bool:
    return settings.flags.enable_block_reuse and settings.is_pytorch and settings.version.since(1, 3)


def _affordable(settings: Settings, budget: int, slope: int, state: int) -> int:
    """Tokens within `budget` where a token costs `slope` bytes and states their share."""
    left = budget - settings.max_batch * settings.flags.pp_size * state
    if state and keeps_snapshots(settings):
        return max(left * settings.state_interval // (slope * settings.state_interval + state), 0)
    return max(left // slope, 0)


def _one_pool(pools: tuple[WindowPool, ...], settings: Settings, budget: int, state: int) -> RankPools:
    if not pools:
        return _empty(settings, state)
    (pool,) = pools
    tokens = _affordable(settings, budget, pool.token_bytes, state)
    if settings.flags.max_tokens is not None:
        tokens = min(tokens, settings.flags.max_tokens)
    size = settings.tokens_per_block
    blocks = ceil_div(tokens, size) if settings.rounds_up else tokens // size
    host = (settings.flags.host_cache_size or 0) // pool.token_bytes // size
    return _made((replace(pool, blocks=blocks, host_blocks=host),), tokens, settings, state)


def _by_window(pools: tuple[WindowPool, ...], settings: Settings, budget: int, state: int) -> RankPools:
    """Equal shares of the bytes to each distinct window, whatever its layers need."""
    pools = _shrunk(pools, settings, budget)
    size, host = settings.tokens_per_block, settings.flags.host_cache_size or 0
    share, host_share = budget // len(pools), host // len(pools)
    out = []
    for pool in pools:
        tokens = share // pool.token_bytes
        blocks = tokens // size if settings.is_pytorch else ceil_div(tokens, size)
        out.append(replace(pool, blocks=blocks, host_blocks=host_share // pool.token_bytes // size))
    tokens = max(pool.blocks for pool in out) * size
    return _made(tuple(out), tokens, settings, state)


def _shrunk(pools: tuple[WindowPool, ...], settings: Settings, budget: int) -> tuple[WindowPool, ...]:
    """Windows lowered until one sequence fits: every layer gets tokens alike until a window is full."""
    if sum(pool.window * pool.token_bytes for pool in pools) < budget or settings.uses_v2:
        return pools
    left, reached, before = budget, 0, 0
    lowered: dict[int, list[WindowPool]] = {}
    for position, pool in enumerate(pools):
        cost = sum(item.token_bytes for item in pools[position:])
        if left > 0:
            step = min(left // cost, pool.window - before)
            left -= step * cost
            reached += step
            if reached < pool.window:
                left = 0
        lowered.setdefault(max(reached, 1), []).append(pool)
        before = pool.window
    return tuple(
        replace(
            members[-1],
            window=window,
            num_layers=sum(item.num_layers for item in members),
            token_bytes=sum(item.token_bytes for item in members),
        )
        for window, members in lowered.items()
    )


def quota(settings: Settings, pools: Sequence[WindowPool], budget: int) -> int:
    """V2's bytes: the budget, or what max_tokens come to at the fill level up to which it resumes requests."""
    tokens = settings.flags.max_tokens
    if tokens is None:
        return budget
    per_token = sum(pool.token_bytes for pool in pools)
    return min(budget, ceil(tokens * per_token / settings.flags.max_util_for_resume))


def _by_quota(pools: tuple[WindowPool, ...], settings: Settings, budget: int, state: int) -> RankPools:
    """Windows are a fixed amount for every request of a batch; the layers without one get tokens from the rest."""
    if not pools:
        return _empty(settings, state)
    size = settings.tokens_per_block
    left = quota(settings, pools, budget) - settings.max_batch * settings.flags.pp_size * state
    short = [pool for pool in pools if pool.window < settings.asked_len]
    full = [pool for pool in pools if pool.window >= settings.asked_len]
    out = []
    for pool in short:
        wanted = settings.max_batch * window_blocks(pool.window, size)
        afforded = max(left, 0) // pool.block_bytes(size) // (1 if not full else 2)
        blocks = min(wanted, afforded)
        left -= blocks * pool.block_bytes(size)
        out.append(replace(pool, blocks=blocks))
    slope = sum(pool.token_bytes for pool in full)
    tokens = (
        _affordable(
            settings, max(left, 0) + settings.max_batch * settings.flags.pp_size * state, slope, state
        )
        if full
        else 0
    )
    out += [replace(pool, blocks=tokens // size) for pool in full]
    host = settings.flags.host_cache_size or 0
    whole = sum(pool.token_bytes for pool in out)
    out = [replace(pool, host_blocks=host // whole // size) for pool in out]
    return _made(tuple(out), tokens or max(pool.blocks for pool in out) * size, settings, state)


def window_blocks(window: int, tokens_per_block: int) -> int:
    """Blocks a sequence longer than its window holds."""
    return ceil_div(window, tokens_per_block) + EXTRA_WINDOW_BLOCKS


def stranded_blocks(pools: RankPools, settings: Settings, pool: WindowPool) -> int:
    """Blocks of a window's own pool that a full batch of sequences never holds."""
    if len(pools.pools) == 1 or pool.window >= pools.binding.window:
        return 0
    held = (
        settings.max_batch
        * settings.flags.max_beam_width
        * window_blocks(pool.window, pools.tokens_per_block)
    )
    return max(pool.blocks - held, 0)


def _made(pools: tuple[WindowPool, ...], tokens: int, settings: Settings, state: int) -> RankPools:
    return RankPools(
        pools=pools,
        max_tokens=tokens,
        reached_len=settings.asked_len,
        state_slots=_slots(settings, tokens, state),
        state_bytes=state,
        tokens_per_block=settings.tokens_per_block,
    )


def _empty(settings: Settings, state: int) -> RankPools:
    return _made((), 0, settings, state)


def _reached(found: RankPools, settings: Settings) -> RankPools:
    """max_seq_len after windows that exceed what one sequence finds in their pool were lowered to it."""
    if not found.pools:
        return found
    windows = []
    for pool in found.pools:
        bound = pool.blocks // settings.flags.max_beam_width * found.tokens_per_block
        if settings.asked_len > bound and settings.flags.max_beam_width > 1:
            bound -= found.tokens_per_block
        windows.append(min(pool.window, max(bound, 0)))
    lowered = any(window < pool.window for window, pool in zip(windows, found.pools, strict=True))
    shrunk = found.binding.window < settings.asked_len and not _is_given(settings)
    if not lowered and not shrunk:
        return found
    return replace(found, reached_len=min(settings.asked_len, max(windows)))


def _is_given(settings: Settings) -> bool:
    """Whether the user's own windows are all shorter than the longest request, which then may outgrow them."""
    given = settings.flags.max_attention_window
    return given is not None and max(given) < settings.asked_len


def agreed(found: Sequence[RankPools], settings: Settings) -> tuple[RankPools, ...]:
    """Ranks agree on the fewest tokens and, window by window, on the fewest blocks."""
    tokens = min(item.max_tokens for item in found)
    fewest: dict[int, int] = {}
    for item in found:
        for pool in item.pools:
            fewest[pool.window] = min(fewest.get(pool.window, pool.blocks), pool.blocks)
    reached = min(item.reached_len for item in found)
    return tuple(
        replace(
            item,
            pools=tuple(replace(pool, blocks=fewest[pool.window]) for pool in item.pools),
            max_tokens=tokens,
            reached_len=reached,
            state_slots=_slots(settings, tokens, item.state_bytes),
        )
        for item in found
    )
