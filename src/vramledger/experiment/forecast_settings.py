"""What an engine is simulated by: a plan where there is one, else what the engine tells of itself, in both cases with the pool that it confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines import engine_name
from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.experiment.result import PoolConfirmed
from vramledger.gateway.live.capacity import Capacity, Given, Settings, capacity_of
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.measurement import Measurement
from vramledger.simulation.from_plan import layout_of, scheduler_of
from vramledger.simulation.settings import SchedulerSettings, Scheduling, SimulationSettings
from vramledger.simulation.step_model import StepModel

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.models.model import Model

NOTHING_MEASURED = StepModel(
    overhead_ps=1_000_000_000,
    floor_ps=0,
    token_ps=0,
    decode_seq_ps=0,
    kv_token_ps=0,
    evidence=assumed("nothing is measured yet: a millisecond a step"),
)
SCHEDULING = {
    "vllm": Scheduling.VLLM,
    "sglang": Scheduling.SGLANG,
    "llamacpp": Scheduling.LLAMACPP,
    "tensorrt-llm": Scheduling.TRTLLM_NO_EVICT,
}
STEP_TOKENS = {"vllm": 2048, "sglang": 8192, "llamacpp": 2048, "tensorrt-llm": 8192}
"""The engines' own default of the tokens in a step, where nobody tells: vllm engine/arg_utils.py for a server, sglang server_args.py
(chunked_prefill_size), llama.cpp common.h (n_batch), tensorrt_llm llm_args.py (max_num_tokens)."""
LIMITS = {
    "vllm": {
        name: name
        for name in (
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_model_len",
            "long_prefill_token_threshold",
        )
    },
    "llamacpp": {
        "n_batch": "max_num_batched_tokens",
        "n_slots": "max_num_seqs",
        "total_slots": "max_num_seqs",
    },
    "sglang": {"chunked_prefill_size": "max_num_batched_tokens", "max_running_requests": "max_num_seqs"},
    "tensorrt-llm": {"max_num_tokens": "max_num_batched_tokens", "max_batch_size": "max_num_seqs"},
}
"""The engines' names, in logs and answers, of what the simulator's scheduler is bound by."""
MOST_BLOCKS = 1 << 31
MOST_SEQS = 1 << 20
"""No server has more; what tells of more is not simulated."""
SWITCHES = {
    "enable_prefix_caching": "prefix_caching",
    "enable_chunked_prefill": "chunked_prefill",
    "async_scheduling": "async_scheduling",
}


class ForecastSettings(Struct, frozen=True, kw_only=True):
    """`notes` say what was taken from where, and what was not known. Where `knows_step` is False the step model is none."""

    settings: SimulationSettings
    knows_step: bool = False
    notes: tuple[str, ...] = ()


def forecast_settings(
    plan: Plan | None,
    told: Measurement | None,
    pool: PoolConfirmed | None = None,
    *,
    engine: str | None = None,
    context_len: int | None = None,
    model: Model | None = None,
    step: StepModel | None = None,
    where: str = "the engine",
) -> ForecastSettings:
    """The settings of an engine by its `plan` and by what it has `told` of itself (its log and launch flags merged into it, where known), with the
    blocks that `pool` confirms.

    Where the plan and the engine differ the engine goes, and a note says so. `step` is a step model known beforehand. Raises InputError where neither says
    what the pool is, and where the engine's scheduler is not simulated.
    """
    notes: list[str] = []
    settings: Settings = {} if told is None else dict(told.settings)
    if plan is not None:
        layout, scheduler = layout_of(plan, model=model), scheduler_of(plan)
        name = engine_name(plan.inputs.engine)
    else:
        given = Given(
            engine=engine,
            pool_tokens=None if pool is None else pool.engine_tokens,
            max_model_len=context_len,
            kv_unified=unified if isinstance(unified := settings.get("kv_unified"), bool) else None,
        )
        found = capacity_of(_pool_first(told), given, where=where)
        notes += found.notes
        name = found.engine
        layout, scheduler = found.layout, _scheduler(found, settings, notes)
    layout = _confirmed(layout, pool, notes)
    scheduler = _as_told(scheduler, LIMITS.get(name, {}), settings, notes)
    if not scheduler.chunked_prefill and scheduler.max_num_batched_tokens < scheduler.max_model_len:
        scheduler = replace(scheduler, max_num_batched_tokens=scheduler.max_model_len)
    if scheduler.max_num_seqs > MOST_SEQS or max(layout.num_blocks, scheduler.max_model_len) > MOST_BLOCKS:
        raise InputError(
            f"{where} tells of {scheduler.max_num_seqs:,} requests at once of at most {scheduler.max_model_len:,} tokens in "
            f"{layout.num_blocks:,} blocks, more than any server has",
            source=where,
        )
    return ForecastSettings(
        settings=SimulationSettings(layout=layout, scheduler=scheduler, step=step or NOTHING_MEASURED),
        knows_step=step is not None,
        notes=tuple(notes),
    )


def _pool_first(told: Measurement | None) -> Measurement | None:
    """With the pool that has blocks before those of which only tokens are told, as logs do."""
    if told is None:
        return None
    pools = sorted(told.pools, key=lambda pool: pool.num_blocks is None or not pool.block_size)
    return replace(told, pools=tuple(pools))


def _scheduler(capacity: Capacity, settings: Settings, notes: list[str]) -> SchedulerSettings:
    rules = SCHEDULING.get(capacity.engine)
    if rules is None:
        raise InputError(
            f"how {capacity.engine or 'the engine'} schedules is not simulated, so nothing is foretold",
            engine=capacity.engine,
        )
    told = {ours for theirs, ours in LIMITS[capacity.engine].items() if theirs in settings}
    tokens = capacity.step_tokens
    if tokens is None and "max_num_batched_tokens" in told:
        tokens = STEP_TOKENS[capacity.engine]
    if tokens is None:
        tokens = STEP_TOKENS[capacity.engine]
        notes.append(
            f"the engine does not tell how many tokens it computes in a step: {tokens:,}, its default; a manifest settles it"
        )
    if capacity.max_running == capacity.layout.usable_blocks and "max_num_seqs" not in told:
        notes.append(
            "the engine does not tell how many requests it runs at once: as many as the pool has blocks; a manifest settles it"
        )
    return SchedulerSettings(
        scheduling=rules,
        max_num_seqs=capacity.max_running,
        max_num_batched_tokens=tokens,
        max_model_len=capacity.max_model_len,
        prefix_caching=capacity.keeps_prefixes or capacity.engine == "llamacpp",
        async_scheduling=capacity.lag_steps > 0,
        reserve_full_prompt=rules is not Scheduling.LLAMACPP,
    )


def _confirmed(layout: PoolLayout, pool: PoolConfirmed | None, notes: list[str]) -> PoolLayout:
    """With the engine's own blocks; where it tells only tokens, those of a plain pool."""
    if pool is None:
        return layout
    blocks = pool.engine_blocks
    if blocks is not None and pool.block_size not in (None, layout.key_tokens) and layout.is_plain:
        blocks = None
    if blocks is None and pool.engine_tokens is not None and layout.is_plain:
        blocks = pool.engine_tokens // layout.key_tokens
    if blocks is None or blocks == layout.num_blocks or blocks <= layout.reserved_blocks:
        return layout
    notes.append(
        f"the pool has {blocks:,} blocks by the engine, {layout.num_blocks:,} by the plan; the engine's go"
    )
    return replace(layout, num_blocks=blocks)


def _as_told(
    scheduler: SchedulerSettings, limits: Mapping[str, str], settings: Settings, notes: list[str]
) -> SchedulerSettings:
    """With the settings that the engine prints or answers."""
    for theirs, ours in limits.items():
        scheduler = _changed(scheduler, ours, settings.get(theirs), notes)
    for told, name in SWITCHES.items():
        value = settings.get(told)
        if isinstance(value, bool) and value is not getattr(scheduler, name):
            notes.append(f"{told} is {value} by the engine")
            scheduler = replace(scheduler, **{name: value})
    return scheduler


def _changed(scheduler: SchedulerSettings, name: str, value: object, notes: list[str]) -> SchedulerSettings:
    before = getattr(scheduler, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value == before:
        return scheduler
    notes.append(f"{name} is {value:,} by the engine, {before:,} before")
    return replace(scheduler, **{name: value})
