"""A request from when it is sent to its outcome."""

from __future__ import annotations

from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.reference.replica import Replica
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.workload.request import Request


class Served:
    """One request and its sequences: one a branch, each on the same replica.

    Its outcome takes the first of the branches' admissions and first tokens, the last of their ends, and the sum of what was
    hit and recomputed; one branch that did not finish tells its status.
    """

    __slots__ = ("number", "open_branches", "replica", "request", "sent_ps", "sequences", "status")

    def __init__(self, number: int, request: Request, sent_ps: int) -> None:
        self.number = number
        self.request = request
        self.sent_ps = sent_ps
        self.replica: Replica | None = None
        self.sequences: list[Sequence] = []
        self.open_branches = 0
        self.status = Status.UNFINISHED

    def outcome(self, end_ps: int) -> RequestOutcome:
        """What became of it; `end_ps` is -1 where it did not end."""
        admitted = [s.admitted_ps for s in self.sequences if s.admitted_ps >= 0]
        first = [s.first_token_ps for s in self.sequences if s.first_token_ps >= 0]
        return RequestOutcome(
            number=self.number,
            replica=self.replica.number if self.replica is not None else -1,
            status=self.status,
            sent_ps=self.sent_ps,
            admitted_ps=min(admitted, default=-1),
            first_token_ps=min(first, default=-1),
            end_ps=end_ps,
            prompt_tokens=self.request.prompt_tokens,
            output_tokens=sum(s.generated_tokens for s in self.sequences),
            hit_tokens=sum(s.hit_tokens for s in self.sequences),
            recomputed_tokens=sum(s.recomputed_tokens for s in self.sequences),
            preemptions=sum(s.preemptions for s in self.sequences),
        )
