"""One run: a trace at a load on an engine, with a policy in front of it or without."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace
from tools.admission_table.scenes import BY_NAME, STEP_TOKENS, Part, asked, at_load
from tools.ranks import nearest_rank

from vramledger.admission.books import Pace
from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Decision
from vramledger.admission.defaults import Goal, default_settings
from vramledger.admission.policy import Policy
from vramledger.admission.protocol import AdmissionPolicy, AdmissionView
from vramledger.admission.service_time import StepTimes
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.engines import find_full_pool
from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.settings import Scheduling, SimulationSettings
from vramledger.simulation.step_model import PS_PER_NS, PS_PER_S
from vramledger.workload.request import Request

PS_PER_MS = 1_000_000_000
ALONE = "engine alone"
DEFAULT = "default"
TRUE_LENGTHS = "default, true lengths"
ENGINES: dict[Scheduling, tuple[str, dict[str, object]]] = {
    Scheduling.VLLM: ("vllm", {}),
    Scheduling.SGLANG: ("sglang", {}),
    Scheduling.TRTLLM_NO_EVICT: ("tensorrt-llm", {}),
    Scheduling.TRTLLM_MAX_UTILIZATION: ("tensorrt-llm", {"capacity_scheduler_policy": "MAX_UTILIZATION"}),
    Scheduling.LLAMACPP: ("llamacpp", {}),
}
NAMES = {
    Scheduling.VLLM: "vLLM",
    Scheduling.SGLANG: "SGLang",
    Scheduling.TRTLLM_NO_EVICT: "TensorRT-LLM, no evict",
    Scheduling.TRTLLM_MAX_UTILIZATION: "TensorRT-LLM, max utilization",
    Scheduling.LLAMACPP: "llama.cpp, unified KV",
}


class Case(Struct, frozen=True, kw_only=True):
    """What is run. `policy` is `ALONE`, `DEFAULT`, `TRUE_LENGTHS` or a reservation; `load` counts in the capacity `per_s`."""

    scene: str
    part: Part
    scheduling: Scheduling
    policy: str
    load: float
    per_s: float
    stays: bool


class Figures(Struct, frozen=True, kw_only=True):
    """What came of it. Good are requests that got what their clients wanted, of `offered`; quantiles are over those that got so far."""

    offered: int
    good: int
    preemptions: int
    refused: int
    expired: int
    failed: int
    queue_p99_s: float
    first_p50_s: float
    first_p99_s: float

    @property
    def goodput(self) -> float:
        return self.good / self.offered


def capacity(scene_name: str, part: Part) -> float:
    """Requests a second that vLLM's rules finish when all of a part are there at once."""
    scene = BY_NAME[scene_name]
    rows = asked(scene, part)
    burst = [replace(one, arrival_ns=0) for one in rows.requests]
    outcomes, end_ps, _ = served(scene.settings(Scheduling.VLLM), burst, rows.block_tokens, None)
    return sum(one.status is Status.FINISHED for one in outcomes) * PS_PER_S / end_ps


def figures(case: Case) -> Figures:
    """Runs a case."""
    scene = BY_NAME[case.scene]
    rows = asked(scene, case.part)
    requests = at_load(rows.requests, case.load * case.per_s, None if case.stays else scene.first_token_ns)
    if case.policy == TRUE_LENGTHS:
        requests = [replace(one, max_output_tokens=one.output_tokens) for one in requests]
    settings = scene.settings(case.scheduling)
    policy = policy_of(case, settings)
    told = None if policy is None else Told(policy, scene.first_token_ns * PS_PER_NS)
    outcomes, _, preemptions = served(settings, requests, rows.block_tokens, told)
    statuses = [one.status for one in outcomes]
    first = [one.first_token_ps - one.sent_ps for one in outcomes if one.first_token_ps >= 0]
    token_ps = scene.token_ms * PS_PER_MS
    return Figures(
        offered=len(outcomes),
        good=sum(is_good(one, scene.first_token_ns * PS_PER_NS, token_ps) for one in outcomes),
        preemptions=preemptions,
        refused=statuses.count(Status.REJECTED),
        expired=statuses.count(Status.EXPIRED),
        failed=statuses.count(Status.FAILED),
        queue_p99_s=quantile_s(
            [one.admitted_ps - one.sent_ps for one in outcomes if one.admitted_ps >= 0], 99
        ),
        first_p50_s=quantile_s(first, 50),
        first_p99_s=quantile_s(first, 99),
    )


def policy_of(case: Case, settings: SimulationSettings) -> Policy | None:
    """The policy in front, None for the engine alone."""
    if case.policy == ALONE:
        return None
    scheduler, layout = settings.scheduler, settings.layout
    times = StepTimes(settings.step, step_tokens=scheduler.max_num_batched_tokens)
    if case.policy in (DEFAULT, TRUE_LENGTHS):
        engine, values = ENGINES[case.scheduling]
        is_true = case.policy == TRUE_LENGTHS
        chosen = default_settings(
            Goal.NO_FAILURE if is_true else Goal.DEADLINES,
            find_full_pool(engine)(values).when_full,
            layout=layout,
            max_model_len=scheduler.max_model_len,
            max_running=scheduler.max_num_seqs,
            step_tokens=STEP_TOKENS,
        )
        return Policy(chosen, times)
    plain = PolicySettings(
        layout=layout,
        max_model_len=scheduler.max_model_len,
        max_running=scheduler.max_num_seqs,
        pace=Pace(step_tokens=STEP_TOKENS, max_running=scheduler.max_num_seqs),
        reservation=Reservation(case.policy),
        watermark_blocks=layout.usable_blocks // 50,
    )
    return Policy(plain, times)


class Told:
    """A policy that is told by when a client wants its first token, whether or not it leaves then."""

    def __init__(self, policy: Policy, first_token_ps: int) -> None:
        self._policy = policy
        self._first_token_ps = first_token_ps
        self.at_scheduling = policy.at_scheduling
        self.at_progress = policy.at_progress
        self.at_end = policy.at_end

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        due_ps = candidate.sent_ps + self._first_token_ps
        return self._policy.at_arrival(replace(candidate, first_token_deadline_ps=due_ps), view, now_ps)


def served(
    settings: SimulationSettings,
    requests: list[Request],
    block_tokens: int | None,
    policy: AdmissionPolicy | None,
) -> tuple[list[RequestOutcome], int, int]:
    """A run's outcomes, its end, and its preemptions."""
    outcomes: list[RequestOutcome] = []
    driver = Driver(
        settings,
        block_tokens=block_tokens,
        samples=16,
        policies=None if policy is None else lambda _: policy,
        ended=outcomes.append,
    )
    run = driver.run(requests)
    return outcomes, run.end_ps, run.counters[0].preemptions


def is_good(outcome: RequestOutcome, first_token_ps: int, token_ps: int) -> bool:
    """Whether a client got what it wanted."""
    if outcome.status is not Status.FINISHED:
        return False
    rest_ps = outcome.end_ps - outcome.first_token_ps
    return (
        outcome.first_token_ps - outcome.sent_ps <= first_token_ps
        and rest_ps <= (outcome.output_tokens - 1) * token_ps
    )


def quantile_s(values_ps: list[int], percent: int) -> float:
    """Nearest rank, in seconds; 0 of nothing."""
    return nearest_rank(values_ps, percent) / PS_PER_S
