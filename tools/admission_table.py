"""Admission policies in front of a simulated engine against the engine alone, by load.

    python -m tools.admission_table [--requests 400] [--blocks 1500] [--loads 0.5,1,1.3,2] [--patient]

Requests are the first of Azure's conversation trace with arrivals drawn together or apart. Load 1 is the most requests a second that the engine
alone finishes when all are there at once. Each client names a bound of 1,024 output tokens (the trace says none), wants its first token within
3 s and leaves when that has passed; with --patient it stays, and policies are told the deadline all the same. Good are requests that got
it and then a token at least every 50 ms on average, over those offered. Policies with "small first" let a request that is 1,000 tokens smaller go
before one that came up to 10 s earlier.
The engine is vLLM's scheduling with a pool that is small for what it computes, so that it preempts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice, product
from pathlib import Path

from msgspec.structs import replace

from vramledger.admission.books import Pace
from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Decision
from vramledger.admission.policy import Policy
from vramledger.admission.protocol import AdmissionPolicy, AdmissionView
from vramledger.admission.service_time import StepTimes
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.settings import SchedulerSettings, Scheduling, SimulationSettings
from vramledger.simulation.step_model import PS_PER_NS, PS_PER_S, StepModel
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.request import Request

AZURE = (
    Path(__file__).parents[1] / "data" / "traces" / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv.gz"
)
BOUND_TOKENS = 1024
FIRST_TOKEN_NS = 3_000_000_000
TOKEN_PS = 50_000_000_000
MAX_MODEL_LEN = 16_384
Policies = Callable[[int], AdmissionPolicy] | None


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--blocks", type=int, default=1500)
    parser.add_argument("--loads", default="0.5,1,1.3,2")
    parser.add_argument("--patient", action="store_true")
    options = parser.parse_args()
    settings = simulated(options.blocks, Scheduling.VLLM)
    asked = [
        replace(one, max_output_tokens=max(BOUND_TOKENS, one.output_tokens))
        for one in islice(read_workload(AZURE).requests(), options.requests)
    ]
    burst, run = served(settings, [replace(one, arrival_ns=0) for one in asked], None)
    finished = sum(outcome.status is Status.FINISHED for outcome in burst)
    capacity = finished * PS_PER_S / run.end_ps
    print(
        f"{len(asked)} requests, {options.blocks:,} blocks of 16 tokens; load 1 is {capacity:.2f} requests a second\n"
    )
    print(
        "| load | policy | good | preempted | refused | expired | first token p50, p99 s | queue p99 s | wall s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for load in map(float, options.loads.split(",")):
        requests = at_load(asked, load * capacity, is_patient=options.patient)
        for name, simulation, policies in contenders(settings, options.blocks):
            began = time.perf_counter()
            outcomes, run = served(simulation, requests, policies)
            print(row(load, name, outcomes, run, time.perf_counter() - began), flush=True)
    return 0


def simulated(blocks: int, scheduling: Scheduling) -> SimulationSettings:
    """An 8B model's steps over a small pool."""
    return SimulationSettings(
        layout=PoolLayout(num_blocks=blocks + 1, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1),
        scheduler=SchedulerSettings(
            scheduling=scheduling, max_num_seqs=128, max_num_batched_tokens=2048, max_model_len=MAX_MODEL_LEN
        ),
        step=StepModel(
            overhead_ps=1_500_000_000,
            floor_ps=5_000_000_000,
            token_ps=20_000_000,
            decode_seq_ps=1_000_000,
            kv_token_ps=40_000,
            pair_ps_per_1024=20_000,
            evidence=assumed("of the order of an 8B model on an H100"),
        ),
    )


def at_load(asked: Iterable[Request], requests_per_s: float, *, is_patient: bool) -> list[Request]:
    """The same requests in the same rhythm, so many a second on average, with deadlines unless clients are patient."""
    rows = list(asked)
    first_ns = rows[0].arrival_ns
    factor = len(rows) / requests_per_s * 1e9 / (rows[-1].arrival_ns - first_ns)
    return [
        replace(
            one,
            arrival_ns=round((one.arrival_ns - first_ns) * factor),
            first_token_deadline_ns=None if is_patient else FIRST_TOKEN_NS,
        )
        for one in rows
    ]


def contenders(
    settings: SimulationSettings, blocks: int
) -> Iterable[tuple[str, SimulationSettings, Policies]]:
    """The engine alone, other engines' rules, and each policy in front of the engine."""
    yield "engine alone", settings, None
    yield "SGLang's rules", simulated(blocks, Scheduling.SGLANG), None
    yield "TensorRT-LLM's, no evict", simulated(blocks, Scheduling.TRTLLM_NO_EVICT), None
    scheduler = settings.scheduler
    times = StepTimes(settings.step, step_tokens=scheduler.max_num_batched_tokens)
    for reservation, is_small_first in product(Reservation, (False, True)):
        chosen = PolicySettings(
            layout=settings.layout,
            max_model_len=scheduler.max_model_len,
            max_running=scheduler.max_num_seqs,
            pace=Pace(step_tokens=scheduler.max_num_batched_tokens, max_running=scheduler.max_num_seqs),
            reservation=reservation,
            watermark_blocks=blocks // 50,
            token_wait_ps=PS_PER_S // 100 if is_small_first else 0,
        )

        def policies(_: int, chosen: PolicySettings = chosen) -> AdmissionPolicy:
            return Told(Policy(chosen, times))

        yield f"{reservation.value}{', small first' if is_small_first else ''}", settings, policies


class Told:
    """A policy that is told by when a client wants its first token, whether or not it leaves then."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self.at_scheduling = policy.at_scheduling
        self.at_progress = policy.at_progress
        self.at_end = policy.at_end

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        due_ps = candidate.sent_ps + FIRST_TOKEN_NS * PS_PER_NS
        return self._policy.at_arrival(replace(candidate, first_token_deadline_ps=due_ps), view, now_ps)


def served(
    settings: SimulationSettings, requests: list[Request], policies: Policies
) -> tuple[list[RequestOutcome], Run]:
    """A run's outcomes in order."""
    outcomes: list[RequestOutcome] = []
    run = Driver(settings, block_tokens=None, samples=16, policies=policies, ended=outcomes.append).run(
        requests
    )
    return sorted(outcomes, key=lambda outcome: outcome.number), run


def row(load: float, name: str, outcomes: list[RequestOutcome], run: Run, wall_s: float) -> str:
    """A line of the table."""
    count = len(outcomes)
    first = [one.first_token_ps - one.sent_ps for one in outcomes if one.first_token_ps >= 0]
    queued = [one.admitted_ps - one.sent_ps for one in outcomes if one.admitted_ps >= 0]
    statuses = [one.status for one in outcomes]
    good = sum(map(is_good, outcomes))
    return (
        f"| {load:g} | {name} | {good / count:.1%} | {run.counters[0].preemptions} "
        f"| {statuses.count(Status.REJECTED)} | {statuses.count(Status.EXPIRED)} "
        f"| {quantile_s(first, 50):.2f}, {quantile_s(first, 99):.2f} | {quantile_s(queued, 99):.2f} | {wall_s:.1f} |"
    )


def is_good(outcome: RequestOutcome) -> bool:
    """Whether a client got what it wanted."""
    if outcome.status is not Status.FINISHED:
        return False
    first_ps = outcome.first_token_ps - outcome.sent_ps
    rest_ps = outcome.end_ps - outcome.first_token_ps
    return first_ps <= FIRST_TOKEN_NS * PS_PER_NS and rest_ps <= (outcome.output_tokens - 1) * TOKEN_PS


def quantile_s(values_ps: list[int], percent: int) -> float:
    """Nearest rank, in seconds."""
    ranked = sorted(values_ps) or [0]
    return ranked[-(-percent * len(ranked) // 100) - 1] / PS_PER_S


if __name__ == "__main__":
    sys.exit(main())
