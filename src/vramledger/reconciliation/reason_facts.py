"""What the rules of reasons look at, and how they tell sizes and shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.ledger import Entry, RankLedger
from vramledger.measurement import Measurement
from vramledger.reconciliation.result import Budget, Line, Number, Reason, SettingDifference
from vramledger.reconciliation.trials import Trials
from vramledger.units import format_bytes

LEAST_SHARE = 0.02
"""Shares of a difference below this are not told, and what is left below it is nothing."""


class Facts(Struct, frozen=True, kw_only=True):
    """What the rules look at. `lines` are all lines as they stand, without reasons."""

    plan: Plan
    measurement: Measurement
    differences: tuple[SettingDifference, ...]
    lines: tuple[Line, ...]
    trials: Trials
    budget: Budget | None
    remade: dict[int, tuple[Line, ...]]

    def entries(self, line: Line) -> list[Entry]:
        """The ledger's lines that a line covers."""
        rank = self.rank(line)
        return [] if rank is None else [entry for entry in rank.entries if entry.name in line.entries]

    def rank(self, line: Line) -> RankLedger | None:
        return next((item for item in self.plan.ranks if item.ranks == line.ranks), None)

    def setting(self, name: str) -> object:
        return dict(self.measurement.settings).get(name)


Rule = Callable[[Line, Facts], Iterator[Reason]]


def shared(line: Line, explains: Number) -> float | None:
    """The part of the line's difference, None for a difference of nothing."""
    difference = line.difference
    return explains / difference if difference else None


def signed(size: Number) -> str:
    return f"{'-' if size < 0 else '+'}{format_bytes(abs(int(size)))}"
