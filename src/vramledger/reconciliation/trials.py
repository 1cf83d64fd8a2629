"""Settings that differ, tried: a plan made anew under what was measured shows how much of a difference each one explains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.engines.option import plain_name
from vramledger.errors import FlagError, VramledgerError
from vramledger.measurement import Measurement
from vramledger.models.checkpoint import Checkpoint
from vramledger.planning import plan
from vramledger.reconciliation.arguments import PlanArguments, plan_arguments
from vramledger.reconciliation.result import Number, SettingDifference
from vramledger.reconciliation.settings import DEVICE_TOTAL, VERSION

MOST_TRIALS = 12
_MOST_REFUSALS = 6

Replan = Callable[[PlanArguments], Plan]


def planner(checkpoint: Checkpoint, *, concurrency: int = 1) -> Replan:
    """Plans this model under any arguments; they must name a device."""

    def made(asked: PlanArguments) -> Plan:
        assert asked.device is not None
        flags: dict[str, Any] = {"concurrency": concurrency, **asked.flags}
        return plan(checkpoint, asked.device, engine=asked.engine_text, **flags)

    return made


class Trial(Struct, frozen=True, kw_only=True):
    """A plan under measured settings instead of planned ones; `names` are the settings."""

    names: tuple[str, ...]
    plan: Plan


class Trials(Struct, frozen=True, kw_only=True):
    """The plan as it can be made again, and under each measured setting; empty where it cannot be made again."""

    again: Plan | None = None
    found: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()


def try_settings(
    replan: Replan,
    base: PlanArguments,
    measurement: Measurement,
    differences: Sequence[SettingDifference],
) -> Trials:
    """Each setting that differs by itself, then all of them together."""
    try:
        again, base, dropped = plan_leniently(replan, base)
    except VramledgerError:
        return Trials(
            notes=("the plan cannot be made again from its settings, so that no reason was tested",)
        )
    notes = [f"planned again without {', '.join(dropped)}, which cannot be given again"] if dropped else []
    try:
        theirs = plan_arguments(measurement)
    except VramledgerError:
        return Trials(again=again, notes=tuple(notes))
    named = [item for item in differences if item.flag is not None or item.name in (VERSION, DEVICE_TOTAL)]
    if len(named) > MOST_TRIALS:
        notes.append(f"{len(named)} settings differ; the first {MOST_TRIALS} were tried one by one")
    changed = {item.name: _changed(base, theirs, item) for item in named}
    found = []
    for item in named[:MOST_TRIALS]:
        plan = _planned(replan, changed[item.name](base))
        if plan is None:
            notes.append(f"no plan under {item.name} {item.measured}")
        else:
            found.append(Trial(names=(item.name,), plan=plan))
    if len(found) > 1:
        all_of_them = base
        for item in named:
            all_of_them = changed[item.name](all_of_them)
        plan = _planned(replan, all_of_them)
        if plan is not None:
            found.append(Trial(names=tuple(item.name for item in named), plan=plan))
    return Trials(again=again, found=tuple(found), notes=tuple(notes))


def _changed(
    base: PlanArguments, theirs: PlanArguments, item: SettingDifference
) -> Callable[[PlanArguments], PlanArguments]:
    def change(arguments: PlanArguments) -> PlanArguments:
        if item.name == "engine":
            return theirs
        if item.name == VERSION:
            return replace(arguments, version=theirs.version)
        if item.name == DEVICE_TOTAL:
            return replace(arguments, device=theirs.device or arguments.device)
        flags = dict(arguments.flags)
        for name in [name for name in flags if _is_flag(name, item)]:
            del flags[name]
        for name, value in theirs.flags.items():
            if _is_flag(name, item):
                flags[name] = value
        return replace(arguments, flags=flags)

    return change


_SHORT: Mapping[str, tuple[str, ...]] = {
    "tp": ("tp", "tensor_parallel_size", "tp_size"),
    "pp": ("pp", "pipeline_parallel_size", "pp_size"),
    "dp": ("dp", "data_parallel_size", "dp_size"),
    "ep": ("ep", "enable_expert_parallel", "ep_size", "moe_expert_parallel_size"),
}


def _is_flag(name: str, item: SettingDifference) -> bool:
    return plain_name(name) in (item.flag, *_SHORT.get(item.name, ()))


def plan_leniently(
    replan: Replan, base: PlanArguments, *, kept: Collection[str] = ()
) -> tuple[Plan, PlanArguments, tuple[str, ...]]:
    """A plan under `base`, the arguments it was made with, and the flags that were left to the engine because it refused them.

    Flags of `kept` are not left out. Raises what the plan raises.
    """
    dropped: list[str] = []
    while True:
        try:
            return replan(base), base, tuple(dropped)
        except FlagError as problem:
            name = problem.facts.get("flag")
            if (
                not isinstance(name, str)
                or name not in base.flags
                or name in kept
                or len(dropped) == _MOST_REFUSALS
            ):
                raise
            base = replace(base, flags={key: value for key, value in base.flags.items() if key != name})
            dropped.append(name)


def _planned(replan: Replan, arguments: PlanArguments) -> Plan | None:
    try:
        return replan(arguments)
    except VramledgerError:
        return None


def moves(trials: Trials, figure_in: Callable[[Plan], Number | None]) -> Iterator[tuple[Trial, Number]]:
    """For each trial by how much a predicted figure moves; trials in which it is not predicted are left out."""
    before = None if trials.again is None else figure_in(trials.again)
    if before is None:
        return
    for trial in trials.found:
        after = figure_in(trial.plan)
        if after is not None:
            yield trial, after - before
