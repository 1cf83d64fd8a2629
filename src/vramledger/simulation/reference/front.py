"""An admission policy in front of a replica's queue: requests in the policy's words, sequences in the scheduler's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Decision
from vramledger.admission.protocol import AdmissionPolicy, AdmissionView
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.step_model import PS_PER_NS
from vramledger.workload.request import Request


class Front:
    """Asks about a request once for all of its branches that arrive together; it ends for the policy when the last of them does.

    What the policy sees is what a client sends. Where a request names no bound for its output that is the room which the model leaves it, for what it
    will really generate is nobody's to know. `requests` are the run's, by number.
    """

    def __init__(
        self,
        policy: AdmissionPolicy,
        requests: Items[Request],
        *,
        max_model_len: int,
        only_prefills: bool = False,
    ) -> None:
        self._policy = policy
        self._requests = requests
        self._max_model_len = max_model_len
        self._only_prefills = only_prefills
        self._held: dict[int, list[Sequence]] = {}
        self._inside: dict[int, list[Sequence]] = {}
        self._group_of: dict[int, int] = {}

    def __len__(self) -> int:
        """Sequences held back."""
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Sequence]:
        """Those held back, in order of arrival."""
        for group in self._held.values():
            yield from self._present(group)

    def __contains__(self, sequence: Sequence) -> bool:
        return self._group_of.get(sequence.identity) in self._held

    def candidate(self, sequences: Items[Sequence]) -> Candidate:
        """The branches of a request as admission sees them."""
        first = sequences[0]
        request = self._requests[first.number]
        bound = first.max_output_tokens
        if request.max_output_tokens is None and not self._only_prefills:
            bound = max(1, self._max_model_len - first.prompt_tokens)
        return Candidate(
            identity=first.identity,
            prompt_tokens=first.prompt_tokens,
            max_output_tokens=bound,
            keys=tuple(first.keys),
            boundary=first.boundary,
            branches=len(sequences),
            tenant=request.tenant,
            priority=first.priority,
            sent_ps=first.sent_ps,
            first_token_deadline_ps=_instant(first, request.first_token_deadline_ns),
            deadline_ps=_instant(first, request.deadline_ns),
        )

    def settle(self, view: AdmissionView, now_ps: int) -> Iterable[tuple[Admission, Sequence]]:
        """Sequences held back that are let in or refused now."""
        for decision in self._policy.at_scheduling(view, now_ps):
            yield from self._heed(decision, self._held.pop(decision.identity))

    def arrive(
        self, sequences: list[Sequence], view: AdmissionView, now_ps: int
    ) -> Iterable[tuple[Admission, Sequence]]:
        """The branches of one request arrived: what becomes of each, now. Those of a request that waits are held."""
        candidate = self.candidate(sequences)
        for sequence in sequences:
            self._group_of[sequence.identity] = candidate.identity
        decision = self._policy.at_arrival(candidate, view, now_ps)
        if decision.answer is Admission.QUEUE:
            self._held[candidate.identity] = sequences
            return ()
        return self._heed(decision, sequences)

    def progress(self, running: Iterable[Sequence], now_ps: int) -> None:
        """Tells how far the running requests have come."""
        reached: dict[int, int] = {}
        for sequence in running:
            group = self._group_of.get(sequence.identity)
            if group is None:  # Ended, which an engine that plans ahead has not seen yet.
                continue
            reached[group] = max(reached.get(group, 0), sequence.generated_tokens)
        for group, generated_tokens in reached.items():
            self._policy.at_progress(group, generated_tokens, now_ps)

    def leave(self, sequence: Sequence, *, is_finished: bool, now_ps: int) -> None:
        """A sequence ended, or left from where it was held, or before it was asked about."""
        name = self._group_of.pop(sequence.identity, None)
        if name is None:
            return
        groups = self._held if name in self._held else self._inside
        group = groups[name]
        if self._present(group):
            return
        del groups[name]
        generated_tokens = max(one.generated_tokens for one in group)
        self._policy.at_end(name, generated_tokens, is_finished=is_finished, now_ps=now_ps)

    def _heed(self, decision: Decision, group: list[Sequence]) -> list[tuple[Admission, Sequence]]:
        present = self._present(group)
        if decision.answer is Admission.ACCEPT:
            self._inside[decision.identity] = group
        else:
            for sequence in present:
                del self._group_of[sequence.identity]
        return [(decision.answer, sequence) for sequence in present]

    def _present(self, group: list[Sequence]) -> list[Sequence]:
        """Its branches but for those that left."""
        return [one for one in group if one.identity in self._group_of]


def _instant(sequence: Sequence, after_ns: int | None) -> int | None:
    return None if after_ns is None else sequence.sent_ps + after_ns * PS_PER_NS
