"""Whether a replica's work leads anywhere."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.simulation.schedulers.protocol import StepPlan
from vramledger.simulation.schedulers.sequence import Sequence


class Progress:
    """Tells a workload that evicts itself for ever from one that is merely slow.

    A token computed for the first time is progress, and there are finitely many. Between two of them every sequence can
    recompute what it lost; when more than twice all that can be lost has been recomputed, some have been evicted and recomputed
    again and again to no avail.
    """

    def __init__(self) -> None:
        self._repeated_tokens = 0

    def note(self, new_tokens: int, repeated_tokens: int) -> None:
        """A sequence's share of a step: tokens computed for the first time, and again."""
        self._repeated_tokens = 0 if new_tokens else self._repeated_tokens + repeated_tokens

    def is_livelocked(self, plan: StepPlan, unfinished: Iterable[Sequence]) -> bool:
        if not plan.preempted or not self._repeated_tokens:
            return False
        return self._repeated_tokens > 2 * sum(sequence.high_water_tokens for sequence in unfinished)
