"""Engines, or versions of one, side by side on the same question; or plans that were made before."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.ledger import Owner
from vramledger.search.evaluation import Held, Outcome, Subject, evaluate, held, told
from vramledger.search.terms import Question

UNUSED = "unused"
DEVICE = "device"
LAYOUT = "bytes per token"


class Column(Struct, frozen=True, kw_only=True):
    """One engine's answer. `held` is None where it refuses to be asked or to answer; the outcome has the reason. `name` is that of a plan
    that was made before."""

    outcome: Outcome
    held: Held | None = None
    name: str | None = None

    @property
    def plan(self) -> Plan | None:
        return self.outcome.plan

    @property
    def label(self) -> str:
        """The plan's name, or the engine with its version, or as it was asked where there is no plan."""
        plan = self.plan
        if self.name is not None:
            return self.name
        if plan is None:
            return self.outcome.question.engine
        return f"{plan.inputs.engine} {plan.inputs.engine_version}"


class Term(Struct, frozen=True, kw_only=True):
    """A part of a difference in tokens: what an owner leaves more (or less) for the pool, `unused` memory that the
    pool does not take, `device`, a larger (or smaller) one, or `bytes per token`, another layout of the same bytes (its
    `bytes` are 0)."""

    name: str
    bytes: int
    tokens: int


class Difference(Struct, frozen=True, kw_only=True):
    """Why a pool has more tokens than that of the first column. The terms sum to `tokens`, their bytes to `bytes`;
    the largest first."""

    column: int
    against: int
    tokens: int
    bytes: int
    terms: tuple[Term, ...]


class Comparison(Struct, frozen=True, kw_only=True):
    """Columns in the order they were asked for; differences for those that have a pool, against the first that has one."""

    columns: tuple[Column, ...]
    differences: tuple[Difference, ...]

    def owners(self) -> tuple[Owner, ...]:
        """Owners that hold something in some column."""
        shown = [column.held for column in self.columns if column.held is not None]
        return tuple(owner for owner in Owner if any(item.by_owner.get(owner) for item in shown))


def compare(questions: Sequence[Question], subject: Subject) -> Comparison:
    """The answers to questions that differ in their engine. Raises what `evaluate` raises."""
    return _compared(tuple(_column(evaluate(question, subject)) for question in questions))


def compare_plans(plans: Sequence[tuple[str, Plan]]) -> Comparison:
    """Plans by their names, whatever model, device and engine each is of."""
    return _compared(tuple(_column(told(_question(plan), plan), name) for name, plan in plans))


def _question(plan: Plan) -> Question:
    inputs, pool = plan.inputs, plan.kv_pool
    return Question(
        device=inputs.device,
        engine=f"{inputs.engine}=={inputs.engine_version}",
        tp=inputs.tp,
        pp=inputs.pp,
        ep=inputs.ep > 1,
        context_tokens=None if pool is None else pool.context_len,
    )


def _compared(columns: tuple[Column, ...]) -> Comparison:
    pools = [number for number, column in enumerate(columns) if _tokens(column)]
    return Comparison(
        columns=columns,
        differences=tuple(_difference(columns, number, pools[0]) for number in pools[1:]),
    )


def _column(outcome: Outcome, name: str | None = None) -> Column:
    return Column(outcome=outcome, held=held(outcome.plan) if outcome.plan is not None else None, name=name)


def _tokens(column: Column) -> int:
    if column.plan is None or column.plan.kv_pool is None or column.held is None:
        return 0
    return column.plan.kv_pool.tokens.expected if column.held.by_owner.get(Owner.KV_CACHE) else 0


def _difference(columns: Sequence[Column], number: int, against: int) -> Difference:
    """The device is all owners and what is unused, so what one engine gives its pool more, its other owners hold less.

    Bytes become tokens at the rate of the column itself; what is left is the layout: the first column's bytes at
    the two rates.
    """
    here, there = columns[number].held, columns[against].held
    assert here is not None and there is not None
    tokens, base = _tokens(columns[number]), _tokens(columns[against])
    pool, base_pool = here.by_owner[Owner.KV_CACHE], there.by_owner[Owner.KV_CACHE]
    names: list[tuple[str, int]] = [
        (owner.value, there.by_owner.get(owner, 0) - here.by_owner.get(owner, 0))
        for owner in Owner
        if owner is not Owner.KV_CACHE
    ]
    names.append((UNUSED, there.unused_bytes - here.unused_bytes))
    names.append((DEVICE, here.rank.device_total_bytes - there.rank.device_total_bytes))
    terms = [Term(name=name, bytes=size, tokens=size * tokens // pool) for name, size in names if size]
    layout = tokens - base - sum(term.tokens for term in terms)
    if base_pool * tokens != base * pool or layout:
        terms.append(Term(name=LAYOUT, bytes=0, tokens=layout))
    return Difference(
        column=number,
        against=against,
        tokens=tokens - base,
        bytes=pool - base_pool,
        terms=tuple(sorted(terms, key=lambda term: -abs(term.tokens))),
    )
