"""Reasons that are other settings, and what follows from other lines."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.answer import Plan
from vramledger.ledger import RankLedger
from vramledger.reconciliation.reason_facts import LEAST_SHARE, Facts, shared, signed
from vramledger.reconciliation.result import (
    Budget,
    Cause,
    Line,
    Number,
    Reason,
    Section,
    SettingDifference,
    Unit,
)
from vramledger.reconciliation.trials import moves

_MODEL = ("model", "architecture")


def other_settings(line: Line, facts: Facts) -> Iterator[Reason]:
    """A setting that differs: how much of the difference goes away under the measured one, or that it may matter."""
    if not facts.differences:
        return
    by_name = {item.name: item for item in facts.differences}
    tried: set[str] = set()
    for trial, moved in moves(facts.trials, lambda plan: _again(line, plan, facts)):
        tried.update(trial.names)
        share = shared(line, moved)
        if share is None or share < LEAST_SHARE:
            continue
        told = [_told(by_name[name]) for name in trial.names]
        cause = Cause.OTHER_DEVICE if trial.names == ("device_total_bytes",) else Cause.OTHER_SETTING
        text = told[0] if len(told) == 1 else f"all {len(told)} settings that differ, together"
        yield Reason(
            cause=cause,
            text=text,
            evidence=tuple(told) if len(told) > 1 else ("a plan under the measured setting",),
            explains=moved,
            share=share,
            is_tested=True,
        )
    model = [_told(item) for item in by_name.values() if item.name in _MODEL]
    if model:
        yield Reason(cause=Cause.OTHER_MODEL, text="; ".join(model), evidence=("plan the model that ran",))
    open_ones = [item for name, item in by_name.items() if name not in (*tried, *_MODEL)]
    if open_ones:
        yield Reason(
            cause=Cause.OTHER_SETTING,
            text=f"{'; '.join(_told(item) for item in open_ones)}: not tried",
            evidence=("no plan could be made under it",)
            if facts.trials.again is not None
            else ("name the model with --model to have it tried",),
        )


def _told(item: SettingDifference) -> str:
    return f"{item.name} is {item.measured}, planned {item.planned}"


def _again(line: Line, plan: Plan, facts: Facts) -> Number | None:
    """What another plan predicts for a line: that of the same place among its own lines."""
    for other in facts.remade.get(id(plan), ()):
        if (other.section, other.name, other.unit) == (line.section, line.name, line.unit) and (
            other.ranks == line.ranks or len(facts.plan.ranks) == 1
        ):
            return None if other.predicted is None else other.predicted.expected
    return None


def consequence(line: Line, facts: Facts) -> Iterator[Reason]:
    """The remainder takes what the other charged lines leave: the pool that the budget leaves with measured terms says how much
    of its difference is theirs."""
    budget = facts.budget
    if budget is None or not (
        budget.measured_terms or budget.budget_bytes.expected != facts.plan.budget_bytes
    ):
        return
    is_pool = line.section is Section.POOL or any(item.is_remainder for item in facts.entries(line))
    per_unit = _unit_bytes(line, facts.plan)
    if not is_pool or not per_unit:
        return
    moved = budget.pool_bytes.expected - budget.planned_bytes.expected
    explains = moved / per_unit if line.unit is not Unit.BYTES else moved
    share = shared(line, explains)
    if share is None or share < LEAST_SHARE:
        return
    evidence = [f"{item.name}: {signed(item.difference or 0)}" for item in _charged_lines(budget, facts)]
    other = budget.budget_bytes.expected - facts.plan.budget_bytes
    if other:
        evidence.insert(0, f"the budget of this device: {signed(other)}")
    yield Reason(
        cause=Cause.CONSEQUENCE,
        text="it is what the other lines leave of the budget",
        evidence=tuple(evidence),
        explains=explains if line.unit is Unit.REQUESTS else int(explains),
        share=share,
    )


def _charged_lines(budget: Budget, facts: Facts) -> list[Line]:
    """Lines that moved the pool, the largest difference first: of lines within lines the wide one, of two over the same entries
    the one that is charged."""
    rank = next((item for item in facts.plan.ranks if item.ranks == budget.ranks), None)
    if rank is None:
        return []
    told: dict[frozenset[str], Line] = {}
    for item in facts.lines:
        if (
            item.section is Section.LEDGER
            and item.ranks == rank.ranks
            and item.difference
            and _is_charged_rest(item, rank)
        ):
            of = frozenset(item.entries)
            if of not in told or item.name in budget.measured_terms:
                told[of] = item
    widest = [item for of, item in told.items() if not any(of < other for other in told)]
    return sorted(widest, key=lambda item: -abs(item.difference or 0))


def _is_charged_rest(line: Line, rank: RankLedger) -> bool:
    """Whether a line speaks of charged entries only, none of them the remainder."""
    found = [entry for entry in rank.entries if entry.name in line.entries and entry.owner in line.owners]
    return bool(found) and all(entry.inside_budget and not entry.is_remainder for entry in found)


def _unit_bytes(line: Line, plan: Plan) -> float:
    """Bytes of one unit of a pool line, by the plan's own pool."""
    pool = plan.kv_pool
    if line.unit is Unit.BYTES:
        return 1
    if pool is None:
        return 0
    counts = {
        Unit.BLOCKS: pool.num_blocks.expected,
        Unit.TOKENS: pool.tokens.expected,
        Unit.REQUESTS: pool.max_concurrency.expected,
    }
    count = counts[line.unit]
    return pool.bytes.expected / count if count else 0
