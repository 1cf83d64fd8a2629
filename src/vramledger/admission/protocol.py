"""What stands between requests and an engine, and what it sees of the instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Decision


class AdmissionView(Protocol):
    """What a policy sees of an instance: of the simulated one, or in a gateway of a live one."""

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence holds, whether or not their content can still be found."""

    @property
    def used_blocks(self) -> int:
        """Blocks held, by admitted requests or by anything else."""

    @property
    def is_reconciled(self) -> bool:
        """Whether the policy's books are in `used_blocks`, and what is beyond them is surely somebody else's.

        Where not, they are as the instance counts them, and some of what was let in may not have been given its blocks yet.
        """

    @property
    def running_count(self) -> int: ...

    @property
    def waiting_count(self) -> int: ...

    def cached_tokens(self, candidate: Candidate) -> int:
        """Tokens of its prompt that surely need not be computed; 0 where that is not known."""


class AdmissionPolicy(Protocol):
    """Stands in front of an engine's queue and keeps those that it does not let in yet. Pure: the caller passes the time.

    One policy object serves one instance. Calls come in order of time. Every accepted request is told of until its end.
    """

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        """A request arrived. Where the answer is QUEUE the policy keeps it."""

    def at_scheduling(self, view: AdmissionView, now_ps: int) -> Sequence[Decision]:
        """What became of requests that were queued, in order: ACCEPT or REJECT. Those not named wait on.

        To be called whenever something may have changed: before each scheduling, after each end, at each retry.
        """

    def at_progress(self, identity: int, generated_tokens: int, now_ps: int) -> None:
        """An accepted request has so many output tokens (of branches: the longest)."""

    def at_end(self, identity: int, generated_tokens: int, *, is_finished: bool, now_ps: int) -> None:
        """A request left, accepted or queued. `is_finished` unless it was cancelled, failed or cut short by anything but its bound."""
