"""A remedy as a value, the failure it is for, and how a change is sized: on the ledger, else by what the log states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.diagnosis.arithmetic import Arithmetic
from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.knobs import Knobs, knobs_of
from vramledger.diagnosis.moment import Moment
from vramledger.diagnosis.terms import FailureClass
from vramledger.errors import VramledgerError
from vramledger.ledger import Owner, Phase, RankLedger
from vramledger.observation import Value

# The plan of the failing instance with some flags changed; raises VramledgerError where it cannot be made.
Planner = Callable[[Mapping[str, object]], Plan]

_TRANSIENT = frozenset({Owner.ACTIVATION, Owner.WORKSPACE})


class Basis(StrEnum):
    """Where a remedy's size is from; a rule gives none."""

    LEDGER = "ledger"
    MESSAGES = "messages"
    RULE = "rule"


class Remedy(Struct, frozen=True, kw_only=True):
    """One change. `frees_bytes` is what it frees for what failed, on the fullest rank; `tokens` what the KV pool gains or loses.
    None where that cannot be said. `needs` is what would size it."""

    change: str
    effect: str
    frees_bytes: int | None = None
    tokens: int | None = None
    basis: Basis = Basis.RULE
    needs: str = ""


class Case(Struct, frozen=True, kw_only=True):
    """One failure and what is known to size remedies with."""

    facts: Facts
    moment: Moment
    sums: Arithmetic
    failure_class: FailureClass | None
    planner: Planner | None = None
    base: Plan | None = None

    @property
    def knobs(self) -> Knobs:
        return knobs_of(self.facts.engine)

    @property
    def settings(self) -> Mapping[str, Value]:
        planned = {} if self.base is None else dict(self.base.inputs.settings)
        return {**planned, **self.facts.settings}

    @property
    def missing_bytes(self) -> int | None:
        missing = self.sums.missing_bytes
        return None if missing is None else missing.high


def transient_bytes(rank: RankLedger) -> int:
    """What a step holds of activations and workspaces at its worst."""
    return max(
        sum(
            entry.bytes.expected
            for entry in rank.entries
            if entry.owner in _TRANSIENT and phase in entry.phases
        )
        for phase in Phase
    )


def worst(plan: Plan, measure: Callable[[RankLedger], int]) -> int:
    """The most that a kind of rank has of what is measured, in bytes."""
    return max((measure(rank) for rank in plan.ranks), default=0)


def pool_tokens_of(plan: Plan) -> int | None:
    return None if plan.kv_pool is None else plan.kv_pool.tokens.expected


def tried_on_plan(case: Case, changes: Mapping[str, object]) -> tuple[Plan, Plan] | None:
    """The plan as it is and as it would be; None where there is no planner or the change cannot be planned."""
    if case.planner is None or case.base is None:
        return None
    try:
        return case.base, case.planner(changes)
    except VramledgerError:
        return None


def gained_tokens(before: Plan, after: Plan) -> int | None:
    """KV tokens that the pool has more, negative for fewer; None where one of the plans has no pool."""
    old, new = pool_tokens_of(before), pool_tokens_of(after)
    return None if old is None or new is None else new - old


def kv_effect(gained: int | None) -> str:
    if gained is None:
        return ""
    if gained == 0:
        return ", costs no KV"
    return f", {'adds' if gained > 0 else 'costs'} {abs(gained):,} KV tokens"


def whole_setting(case: Case, name: str | None) -> int | None:
    """A setting that is a whole number above 0, None for any other."""
    value = None if name is None else case.settings.get(name)
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and value > 0 else None


def share_of(case: Case, name: str | None) -> float | None:
    """The share of the device that the engine may take: as set, else its default; None for what is no share."""
    value = None if name is None else case.settings.get(name)
    if isinstance(value, float) and 0 < value <= 1:
        return value
    return case.knobs.default_share if value is None else None


def device_bytes(case: Case) -> int | None:
    """The device's whole memory by the message, the log or the plan, in this order."""
    total = case.facts.total_bytes or case.moment.sizes.get("total_bytes")
    if total is not None:
        return total.expected
    return None if case.base is None else case.base.inputs.device_total_bytes


def bytes_per_token(case: Case) -> float | None:
    """By the log's own pool: its bytes over its tokens."""
    pool = case.facts.pool_bytes
    for item in case.moment.notable:
        tokens = item.values.get("kv_tokens", item.values.get("cells_count"))
        if pool is not None and isinstance(tokens, int) and tokens > 0:
            return pool.expected / tokens
    needed, length = case.facts.needed_bytes, case.sums.wanted_tokens
    return needed.expected / length if needed is not None and length else None
