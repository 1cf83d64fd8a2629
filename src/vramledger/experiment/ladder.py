"""Which load is tried next: raised until the aims are missed, then refined between the largest that held and the least that did not."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from msgspec import Struct

from vramledger.experiment.plan import ExperimentPlan
from vramledger.experiment.result import Stage

SLOWEST_PER_S = 0.05
"""No load begins lower, however slow the engine seems."""


class Bracket(Struct, frozen=True, kw_only=True):
    """The largest load that held and the least one above it that did not, None where there is none."""

    held_per_s: float | None
    missed_per_s: float | None

    @property
    def width(self) -> float | None:
        """The gap as a share of the load that held; None while it is open."""
        if self.held_per_s is None or self.missed_per_s is None:
            return None
        return self.missed_per_s / self.held_per_s - 1


def holds(plan: ExperimentPlan, stage: Stage) -> bool:
    """Whether enough of its requests met every aim."""
    return stage.is_whole and stage.measured.goodput >= plan.goodput


def bracket(plan: ExperimentPlan, stages: Iterable[Stage]) -> Bracket:
    """Where the knee lies by these stages. A load that missed below one that held was bad luck and is no end."""
    tried = list(stages)
    held = max((stage.per_s for stage in tried if holds(plan, stage)), default=None)
    missed = [stage.per_s for stage in tried if not holds(plan, stage)]
    above = [per_s for per_s in missed if held is None or per_s > held]
    return Bracket(held_per_s=held, missed_per_s=min(above, default=None))


class Ladder:
    """A ladder of stages from `start_per_s`. It depends on the stages alone, so that a ladder that was left is climbed on."""

    def __init__(self, plan: ExperimentPlan, start_per_s: float) -> None:
        self._plan = plan
        self._start_per_s = start_per_s

    def next(self, stages: Iterable[Stage]) -> float | None:
        """The load to try after these, with four digits; None where the knee is known well enough or enough was tried.

        Up by `growth` until one is missed, down by it until one holds, then the geometric middle.
        """
        tried = list(stages)
        if not tried:
            return rounded(self._start_per_s)
        if len(tried) >= self._plan.most_stages:
            return None
        found = bracket(self._plan, tried)
        if found.held_per_s is None:
            assert found.missed_per_s is not None
            per_s = rounded(found.missed_per_s / self._plan.growth)
        elif found.missed_per_s is None:
            per_s = rounded(found.held_per_s * self._plan.growth)
        elif (found.width or 0.0) <= self._plan.resolution:
            return None
        else:
            per_s = rounded(sqrt(found.held_per_s * found.missed_per_s))
        return per_s if per_s > 0 and all(per_s != stage.per_s for stage in tried) else None


def rounded(per_s: float) -> float:
    """A rate with four digits, as it is shown."""
    return float(f"{per_s:.4g}")
