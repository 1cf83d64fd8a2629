"""Aims are deadlines where clients name none."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.admission.aimed import Aimed
from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Decision, Rule
from vramledger.admission.protocol import AdmissionView


class Instance:
    free_blocks, used_blocks, running_count, waiting_count = 10, 0, 0, 0

    is_reconciled = False

    def cached_tokens(self, candidate: Candidate) -> int:
        return 0


class Recorder:
    """A policy that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        self.told.append((candidate.first_token_deadline_ps, candidate.deadline_ps))
        return Decision(identity=candidate.identity, answer=Admission.ACCEPT, rule=Rule.FITS, at_ps=now_ps)

    def at_scheduling(self, view: AdmissionView, now_ps: int) -> Sequence[Decision]:
        self.told.append(now_ps)
        return ()

    def at_progress(self, identity: int, generated_tokens: int, now_ps: int) -> None:
        self.told.append((identity, generated_tokens, now_ps))

    def at_end(self, identity: int, generated_tokens: int, *, is_finished: bool, now_ps: int) -> None:
        self.told.append((identity, generated_tokens, is_finished, now_ps))


def test_a_clients_own_deadline_stands_and_an_aim_counts_from_when_it_was_sent() -> None:
    recorder, view = Recorder(), Instance()
    aimed = Aimed(recorder, first_token_ps=30, latency_ps=100)
    aimed.at_arrival(Candidate(identity=1, prompt_tokens=5, max_output_tokens=5, sent_ps=7), view, 9)
    own = Candidate(
        identity=2, prompt_tokens=5, max_output_tokens=5, sent_ps=7, first_token_deadline_ps=8, deadline_ps=9
    )
    aimed.at_arrival(own, view, 9)
    none = Aimed(recorder)
    none.at_arrival(Candidate(identity=3, prompt_tokens=5, max_output_tokens=5, sent_ps=7), view, 9)
    aimed.at_scheduling(view, 10)
    aimed.at_progress(1, 2, 11)
    aimed.at_end(1, 3, is_finished=True, now_ps=12)
    assert recorder.told == [(37, 107), (8, 9), (None, None), 10, (1, 2, 11), (1, 3, True, 12)]
