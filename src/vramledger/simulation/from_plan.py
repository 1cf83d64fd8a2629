"""A plan as a simulation takes it: the shape of its pool, and what its engine schedules by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from vramledger.engines import find_scheduling
from vramledger.engines.scheduling import SchedulerLimits
from vramledger.errors import InputError
from vramledger.kvcache.blocks import from_pool
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.kvcache.shape import with_windows
from vramledger.simulation.settings import SchedulerSettings, Scheduling

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.models.model import Model


def layout_of(plan: Plan, num_blocks: int | None = None, *, model: Model | None = None) -> PoolLayout:
    """The pool that a plan leaves, with its expected blocks or with `num_blocks` of them (as an engine printed).

    A plan that an earlier version wrote does not state windows and chunks: then they are those of `model`. Where groups draw from
    pools of their own, the layout is that of the pool that a request of full length takes the largest share of: the one that is
    full first. Raises InputError for a plan without a pool, and where a window is not known.
    """
    pool = plan.kv_pool
    if pool is None:
        raise InputError("the plan leaves no KV pool: its verdict says why")
    if model is not None:
        pool = with_windows(pool, model)
    return from_pool.layout_of(
        pool,
        num_blocks=num_blocks,
        rules=find_scheduling(plan.inputs.engine)(plan).pool,
    )


def scheduler_of(plan: Plan, **changes: Any) -> SchedulerSettings:
    """What the plan's engine schedules by in its version; `changes` are fields of the result that a plan does not know.

    Raises InputError where the engine's scheduler is not simulated.
    """
    rules = find_scheduling(plan.inputs.engine)(plan)
    limits = {name: getattr(rules, name) for name in SchedulerLimits.__struct_fields__}
    found = SchedulerSettings(scheduling=Scheduling(rules.rules), **limits)
    return replace(found, **changes) if changes else found
