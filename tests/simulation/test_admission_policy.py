"""A policy in front of a replica's queue: asked at arrival and before each scheduling, told of progress and of every end."""

from __future__ import annotations

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Decision, Rule
from vramledger.admission.protocol import AdmissionView
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

MS = 1_000_000_000


class OneAtATime:
    """Serves one request at a time and none of more than 100 tokens."""

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.queue: list[Candidate] = []
        self.log: list[tuple[str, int, int]] = []

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        self.log.append(("arrives", candidate.identity, now_ps // MS))
        if candidate.prompt_tokens > 100:
            return decided(candidate, Admission.REJECT, now_ps)
        if self.inside:
            self.queue.append(candidate)
            return decided(candidate, Admission.QUEUE, now_ps)
        return self.let_in(candidate, now_ps)

    def at_scheduling(self, view: AdmissionView, now_ps: int) -> list[Decision]:
        return [self.let_in(self.queue.pop(0), now_ps)] if self.queue and not self.inside else []

    def at_progress(self, identity: int, generated_tokens: int, now_ps: int) -> None:
        assert identity in self.inside

    def at_end(self, identity: int, generated_tokens: int, *, is_finished: bool, now_ps: int) -> None:
        if identity in self.inside:
            self.inside.remove(identity)
        else:
            self.queue = [candidate for candidate in self.queue if candidate.identity != identity]
        self.log.append(("ends" if is_finished else "leaves", identity, now_ps // MS))

    def let_in(self, candidate: Candidate, now_ps: int) -> Decision:
        self.inside.add(candidate.identity)
        return decided(candidate, Admission.ACCEPT, now_ps)


def decided(candidate: Candidate, answer: Admission, now_ps: int) -> Decision:
    rule = {Admission.ACCEPT: Rule.FITS, Admission.QUEUE: Rule.TURN, Admission.REJECT: Rule.NEVER_FITS}[
        answer
    ]
    return Decision(identity=candidate.identity, answer=answer, rule=rule, at_ps=now_ps)


def run_with(policy: OneAtATime, requests: list[Request]) -> tuple[list[RequestOutcome], Run]:
    outcomes: list[RequestOutcome] = []
    settings = SimulationSettings(
        layout=PoolLayout(num_blocks=100, groups=(BlockGroup(block_tokens=16),)),
        scheduler=SchedulerSettings(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=1024),
        step=StepModel(
            overhead_ps=MS, floor_ps=0, token_ps=0, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("1 ms")
        ),
    )
    driver = Driver(settings, block_tokens=None, policies=lambda _: policy, ended=outcomes.append)
    run = driver.run(requests)
    return sorted(outcomes, key=lambda outcome: outcome.number), run


def test_a_policy_accepts_queues_and_rejects() -> None:
    policy = OneAtATime()
    requests = [Request(arrival_ns=0, prompt_tokens=tokens, output_tokens=3) for tokens in (20, 120, 30)]
    (first, large, second), run = run_with(policy, requests)
    assert (first.status, first.admitted_ps, first.end_ps) == (Status.FINISHED, 0, 3 * MS)
    assert (large.status, large.admitted_ps, large.end_ps) == (Status.REJECTED, -1, 0)
    assert (second.status, second.admitted_ps, second.end_ps) == (Status.FINISHED, 3 * MS, 6 * MS)
    assert policy.log == [
        ("arrives", 0, 0), ("arrives", 1, 0), ("arrives", 2, 0), ("ends", 0, 3), ("ends", 2, 6),
    ]  # fmt: skip
    waiting = {sample.at_ps // MS: sample.waiting for sample in run.samples}
    assert (waiting[0], waiting[2], waiting[3]) == (1, 1, 0)


def test_the_branches_of_a_request_are_asked_about_once() -> None:
    policy = OneAtATime()
    requests = [
        Request(arrival_ns=0, prompt_tokens=20, output_tokens=3, branches=3),
        Request(arrival_ns=0, prompt_tokens=20, output_tokens=2, branches=2),
    ]
    (first, second), run = run_with(policy, requests)
    # Identities are those of first branches. Three prompts of 20 tokens fit a step of 64.
    assert policy.log == [("arrives", 0, 0), ("arrives", 3, 0), ("ends", 0, 3), ("ends", 3, 5)]
    assert (first.end_ps, second.admitted_ps, second.end_ps) == (3 * MS, 3 * MS, 5 * MS)
    assert {sample.waiting for sample in run.samples if sample.at_ps < 3 * MS} == {2}


def test_who_leaves_the_queue_is_told_of_and_never_served() -> None:
    policy = OneAtATime()
    requests = [
        Request(arrival_ns=0, prompt_tokens=20, output_tokens=5),
        Request(arrival_ns=0, prompt_tokens=20, output_tokens=5, cancel_ns=2_000_000),
    ]
    (_, left), _ = run_with(policy, requests)
    assert (left.status, left.admitted_ps, left.end_ps) == (Status.CANCELLED, -1, 2 * MS)
    assert policy.log[-2:] == [("leaves", 1, 2), ("ends", 0, 5)]
