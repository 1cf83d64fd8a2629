"""A policy that is told aims: deadlines for requests whose clients name none."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Decision
from vramledger.admission.protocol import AdmissionPolicy, AdmissionView


class Aimed:
    """What an operator wants for every request, in picoseconds after it was sent: its first token, its last. A deadline of the client's own stands."""

    def __init__(
        self, policy: AdmissionPolicy, *, first_token_ps: int | None = None, latency_ps: int | None = None
    ) -> None:
        self._policy = policy
        self._first_token_ps = first_token_ps
        self._latency_ps = latency_ps

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        first_ps, end_ps = candidate.first_token_deadline_ps, candidate.deadline_ps
        if first_ps is None and self._first_token_ps is not None:
            first_ps = candidate.sent_ps + self._first_token_ps
        if end_ps is None and self._latency_ps is not None:
            end_ps = candidate.sent_ps + self._latency_ps
        aimed = replace(candidate, first_token_deadline_ps=first_ps, deadline_ps=end_ps)
        return self._policy.at_arrival(aimed, view, now_ps)

    def at_scheduling(self, view: AdmissionView, now_ps: int) -> Sequence[Decision]:
        return self._policy.at_scheduling(view, now_ps)

    def at_progress(self, identity: int, generated_tokens: int, now_ps: int) -> None:
        self._policy.at_progress(identity, generated_tokens, now_ps)

    def at_end(self, identity: int, generated_tokens: int, *, is_finished: bool, now_ps: int) -> None:
        self._policy.at_end(identity, generated_tokens, is_finished=is_finished, now_ps=now_ps)
