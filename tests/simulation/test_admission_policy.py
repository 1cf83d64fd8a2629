"""A policy in front of a replica's queue: asked at arrival and before each scheduling, told of every end."""

from __future__ import annotations

from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.schedulers.protocol import Admission, AdmissionView
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

MS = 1_000_000_000


class OneAtATime:
    """Serves one request at a time and none of more than 100 tokens."""

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.log: list[tuple[str, int, int]] = []

    def at_arrival(self, sequence: Sequence, view: AdmissionView, now_ps: int) -> Admission:
        self.log.append(("arrives", sequence.number, now_ps // MS))
        if sequence.prompt_tokens > 100:
            return Admission.REJECT
        return self._answer(sequence)

    def at_scheduling(self, sequence: Sequence, view: AdmissionView, now_ps: int) -> Admission:
        return self._answer(sequence)

    def at_end(self, sequence: Sequence, view: AdmissionView, now_ps: int) -> None:
        self.inside.remove(sequence.number)
        self.log.append(("ends", sequence.number, now_ps // MS))

    def _answer(self, sequence: Sequence) -> Admission:
        if self.inside:
            return Admission.QUEUE
        self.inside.add(sequence.number)
        return Admission.ACCEPT


def test_a_policy_accepts_queues_and_rejects() -> None:
    policy = OneAtATime()
    outcomes: list[RequestOutcome] = []
    settings = SimulationSettings(
        layout=PoolLayout(num_blocks=100, groups=(BlockGroup(block_tokens=16),)),
        scheduler=SchedulerSettings(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=1024),
        step=StepModel(
            overhead_ps=MS, floor_ps=0, token_ps=0, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("1 ms")
        ),
    )
    requests = [Request(arrival_ns=0, prompt_tokens=tokens, output_tokens=3) for tokens in (20, 120, 30)]
    driver = Driver(settings, block_tokens=None, policies=lambda _: policy, ended=outcomes.append)
    run = driver.run(requests)
    first, large, second = sorted(outcomes, key=lambda outcome: outcome.number)
    assert (first.status, first.admitted_ps, first.end_ps) == (Status.FINISHED, 0, 3 * MS)
    assert (large.status, large.admitted_ps, large.end_ps) == (Status.REJECTED, -1, 0)
    assert (second.status, second.admitted_ps, second.end_ps) == (Status.FINISHED, 3 * MS, 6 * MS)
    assert policy.log == [
        ("arrives", 0, 0), ("arrives", 1, 0), ("arrives", 2, 0), ("ends", 0, 3), ("ends", 2, 6),
    ]  # fmt: skip
    waiting = {sample.at_ps // MS: sample.waiting for sample in run.samples}
    assert (waiting[0], waiting[2], waiting[3]) == (1, 1, 0)
