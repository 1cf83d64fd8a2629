"""A plan as a simulation takes it: the shape of its pool, and what its engine schedules by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from vramledger.engines import find_scheduling
from vramledger.engines.scheduling import EngineScheduling
from vramledger.errors import InputError
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.kvcache.shape import CONSTANT, cache_shape
from vramledger.kvcache.units import Kept
from vramledger.pool import KvGroup, KvPool
from vramledger.simulation.settings import SchedulerSettings, Scheduling

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.models.model import Model

_WINDOWED = ("sliding", "window", "swa", "chunk")


def layout_of(plan: Plan, num_blocks: int | None = None, *, model: Model | None = None) -> PoolLayout:
    """The pool that a plan leaves, with its expected blocks or with `num_blocks` of them (as an engine printed).

    Windows and chunks are the model's, so a plan whose layers have them needs `model`. Where groups draw from pools of their own,
    the layout is that of the pool that a request of full length takes the largest share of: the one that is full first.
    Raises InputError for a plan without a pool, and where a window is not known.
    """
    pool = plan.kv_pool
    if pool is None:
        raise InputError("the plan leaves no KV pool: its verdict says why")
    rules = find_scheduling(plan.inputs.engine)(plan)
    shared = [group for group in pool.groups if group.pool_blocks is None]
    own = max(
        (group for group in pool.groups if group.pool_blocks is not None),
        key=lambda group: group.blocks_per_request / max(_blocks(group, pool), 1),
        default=None,
    )
    alone = own is not None and (
        not shared or _share((own,), pool) > _share(shared, pool) or shared[0].kind in CONSTANT
    )
    groups = (own,) if alone and own is not None else tuple(shared)
    blocks = _blocks(groups[0], pool) if num_blocks is None else num_blocks
    if blocks < 1:
        raise InputError(f"a pool of {blocks} blocks serves nobody", num_blocks=blocks)
    kept = _kept(pool, model)
    return PoolLayout(
        num_blocks=blocks,
        groups=tuple(_group(group, kept, rules) for group in groups),
        block_bytes=groups[0].num_layers * groups[0].page_bytes if alone else pool.bytes_per_block,
        reserved_blocks=rules.reserved_blocks,
        uncached_first=rules.uncached_first,
    )


def scheduler_of(plan: Plan, **changes: Any) -> SchedulerSettings:
    """What the plan's engine schedules by in its version; `changes` are fields of the result that a plan does not know.

    Raises InputError where the engine's scheduler is not simulated.
    """
    rules = asdict(find_scheduling(plan.inputs.engine)(plan))
    known = {name: value for name, value in rules.items() if name in SchedulerSettings.__struct_fields__}
    found = SchedulerSettings(scheduling=Scheduling(rules["rules"]), **known)
    return replace(found, **changes) if changes else found


def _share(groups: tuple[KvGroup, ...] | list[KvGroup], pool: KvPool) -> float:
    return sum(group.blocks_per_request for group in groups) / max(_blocks(groups[0], pool), 1)


def _blocks(group: KvGroup, pool: KvPool) -> int:
    return (group.pool_blocks or pool.num_blocks).expected


def _kept(pool: KvPool, model: Model | None) -> dict[str, Kept]:
    if model is not None:
        return {group.kind: group.kept for group in cache_shape(pool, model).groups}
    for group in pool.groups:
        if any(word in group.kind for word in _WINDOWED):
            raise InputError(
                f"layers of {group.kind} keep a window that the plan does not state: give the model too",
                kind=group.kind,
            )
    return {}


def _group(group: KvGroup, kept: dict[str, Kept], rules: EngineScheduling) -> BlockGroup:
    if "cross" in group.kind:
        return BlockGroup(kind=GroupKind.CROSS, block_tokens=group.block_size)
    if group.kind in CONSTANT:
        return BlockGroup(
            kind=GroupKind.STATE, block_tokens=group.block_size, state_blocks=max(group.blocks_per_request, 1)
        )
    stays = kept.get(group.kind)
    if stays is None or not (stays.window or stays.chunk):
        return BlockGroup(block_tokens=group.block_size)
    return BlockGroup(
        kind=GroupKind.WINDOW if stays.window else GroupKind.CHUNK,
        block_tokens=group.block_size,
        window_tokens=stays.window or stays.chunk,
        admission_blocks=group.blocks_per_request if rules.caps_admission else None,
    )
