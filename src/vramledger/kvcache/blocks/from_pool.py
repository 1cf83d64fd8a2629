"""The pools that a plan's ledger leaves, in the shape that a block pool works with."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.engines.scheduling import PoolRules
from vramledger.errors import InputError
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.pool import KvGroup, KvPool
from vramledger.units import ceil_div

KINDS = {
    "full_attention": GroupKind.FULL,
    "kv": GroupKind.FULL,
    "mla": GroupKind.FULL,
    "mla_indexer": GroupKind.FULL,
    "compressed_mla": GroupKind.FULL,
    "dsa": GroupKind.FULL,
    "sliding_window": GroupKind.WINDOW,
    "sliding_window_mla": GroupKind.WINDOW,
    "sliding_attention": GroupKind.WINDOW,
    "compressor_state": GroupKind.WINDOW,
    "kv_swa": GroupKind.WINDOW,
    "chunked_local": GroupKind.CHUNK,
    "mamba": GroupKind.STATE,
    "recurrent": GroupKind.STATE,
    "cross_attention": GroupKind.CROSS,
}
"""The engines' words for what a group caches."""


def layouts_of(pool: KvPool, rules: PoolRules = PoolRules()) -> tuple[PoolLayout, ...]:  # noqa: B008 (frozen)
    """One layout for the groups that draw from one pool, and one for each group with a pool of its own; expected blocks.

    A block that groups cut into several of theirs (transformers' sectors) is taken whole by a sequence. Raises InputError for
    a window without its length, as plans written by earlier versions have it, and for a kind that has no rule here.
    """
    found: list[PoolLayout] = []
    shared = tuple(group for group in pool.groups if group.pool_blocks is None)
    if shared:
        found.append(_layout(shared, pool.num_blocks.expected, pool.bytes_per_block, rules))
    for group in pool.groups:
        if group.pool_blocks is not None:
            own = replace(rules, reserved_blocks=0)
            found.append(_layout((group,), group.pool_blocks.expected, _block_bytes(group), own))
    return tuple(found)


def layout_of(
    pool: KvPool,
    *,
    num_blocks: int | None = None,
    rules: PoolRules = PoolRules(),  # noqa: B008 (frozen)
) -> PoolLayout:
    """The layout of the pool that is full first: of which a request of full length takes the largest share.

    Pools that hold nothing but constant state bound how many sequences run, not what they hold, and count only where there
    is no other. `num_blocks` replaces the expected blocks. Raises InputError as `layouts_of`, and for a pool without blocks.
    """
    layouts = layouts_of(pool, rules)
    shared = [group for group in pool.groups if group.pool_blocks is None]
    members = ([shared] if shared else []) + [
        [group] for group in pool.groups if group.pool_blocks is not None
    ]
    pairs = list(zip(layouts, members, strict=True))
    growing = [pair for pair in pairs if not all(group.is_constant for group in pair[0].groups)] or pairs
    found = max(growing, key=_share)[0]
    if num_blocks is not None:
        found = replace(found, num_blocks=num_blocks)
    if found.usable_blocks < 1:
        raise InputError(f"a pool of {found.num_blocks} blocks serves nobody", num_blocks=found.num_blocks)
    return found


def _layout(groups: Sequence[KvGroup], num_blocks: int, block_bytes: int, rules: PoolRules) -> PoolLayout:
    return PoolLayout(
        num_blocks=num_blocks,
        groups=tuple(_group(group, rules.caps_admission) for group in groups),
        block_bytes=block_bytes,
        reserved_blocks=rules.reserved_blocks,
        uncached_first=rules.uncached_first,
        retention_tokens=rules.retention_tokens,
        renews_states=rules.renews_states,
        aligned_commits=rules.aligned_commits,
    )


def _share(pair: tuple[PoolLayout, Sequence[KvGroup]]) -> float:
    layout, groups = pair
    return sum(_most_blocks(group) for group in groups) / max(layout.usable_blocks, 1)


def _group(group: KvGroup, caps_admission: bool) -> BlockGroup:
    kind = KINDS.get(group.kind)
    if kind is None:
        raise InputError(f"there is no rule for how {group.kind!r} layers keep blocks", kind=group.kind)
    if kind in (GroupKind.WINDOW, GroupKind.CHUNK) and not group.window_tokens:
        raise InputError(
            f"the plan does not state the window of its {group.kind} layers: plan again with this version",
            kind=group.kind,
        )
    is_windowed = kind in (GroupKind.WINDOW, GroupKind.CHUNK)
    return BlockGroup(
        kind=kind,
        block_tokens=group.block_size * group.blocks_per_unit,
        window_tokens=group.window_tokens if is_windowed else None,
        state_blocks=_most_blocks(group) if kind is GroupKind.STATE else 0,
        keeps_states=kind is GroupKind.STATE and group.keeps_states,
        admission_blocks=_most_blocks(group) if is_windowed and caps_admission else None,
    )


def _most_blocks(group: KvGroup) -> int:
    return max(ceil_div(group.blocks_per_request, group.blocks_per_unit), 1)


def _block_bytes(group: KvGroup) -> int:
    if group.parts:
        return sum(part.num_layers * part.page_bytes for part in group.parts)
    return group.num_layers * group.page_bytes
