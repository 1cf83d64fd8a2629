"""An admission policy for a simulated instance, and a count of what it decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from vramledger.admission.aimed import Aimed
from vramledger.admission.books import Pace
from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Decision, Rule
from vramledger.admission.defaults import WATERMARK, Goal, default_settings
from vramledger.admission.policy import Policy
from vramledger.admission.protocol import AdmissionPolicy, AdmissionView
from vramledger.admission.service_time import StepTimes
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.engines import find_full_pool
from vramledger.engines.full_pool import WhenFull
from vramledger.simulation.settings import Scheduling, SimulationSettings
from vramledger.simulation.step_model import PS_PER_S

_ENGINES: dict[Scheduling, tuple[str, dict[str, object]]] = {
    Scheduling.VLLM: ("vllm", {}),
    Scheduling.SGLANG: ("sglang", {}),
    Scheduling.TRTLLM_NO_EVICT: ("tensorrt-llm", {"capacity_scheduler_policy": "GUARANTEED_NO_EVICT"}),
    Scheduling.TRTLLM_MAX_UTILIZATION: ("tensorrt-llm", {"capacity_scheduler_policy": "MAX_UTILIZATION"}),
    Scheduling.STATIC_BATCH: ("tensorrt-llm", {"capacity_scheduler_policy": "STATIC_BATCH"}),
}


class Choice(StrEnum):
    """A policy by name: a default for a goal, or a reservation in order of arrival."""

    DEFAULT = "default"
    """The engine's for deadlines."""
    THROUGHPUT = "throughput"
    NO_FAILURE = "no-failure"
    NO_EVICT = "no-evict"
    QUANTILE = "quantile"
    RISK = "risk"
    OPTIMISTIC = "optimistic"


_GOALS = {
    Choice.DEFAULT: Goal.DEADLINES,
    Choice.THROUGHPUT: Goal.THROUGHPUT,
    Choice.NO_FAILURE: Goal.NO_FAILURE,
}


def when_full(settings: SimulationSettings) -> WhenFull:
    """What the simulated engine does where its pool is full."""
    scheduler, layout = settings.scheduler, settings.layout
    if scheduler.scheduling is Scheduling.LLAMACPP:
        is_shared = (
            layout.usable_blocks * layout.key_tokens < scheduler.max_num_seqs * scheduler.max_model_len
        )
        return find_full_pool("llamacpp")(
            {"kv_unified": is_shared, "parallel": scheduler.max_num_seqs}
        ).when_full
    engine, values = _ENGINES[scheduler.scheduling]
    return find_full_pool(engine)(values).when_full


def settings_of(choice: Choice, settings: SimulationSettings) -> PolicySettings:
    """The policy's settings for one replica. Raises InputError where the instance contradicts the choice."""
    scheduler, layout = settings.scheduler, settings.layout
    lag_steps = int(scheduler.async_scheduling)
    if choice in _GOALS:
        return default_settings(
            _GOALS[choice],
            when_full(settings),
            layout=layout,
            max_model_len=scheduler.max_model_len,
            max_running=scheduler.max_num_seqs,
            step_tokens=scheduler.max_num_batched_tokens,
            lag_steps=lag_steps,
        )
    return PolicySettings(
        layout=layout,
        max_model_len=scheduler.max_model_len,
        max_running=scheduler.max_num_seqs,
        pace=Pace(
            step_tokens=scheduler.max_num_batched_tokens,
            max_running=scheduler.max_num_seqs,
            lag_steps=lag_steps,
        ),
        reservation=Reservation(choice.value),
        watermark_blocks=int(layout.usable_blocks * WATERMARK),
    )


class AdmissionCounts(Struct, frozen=True, kw_only=True):
    """What a policy answered: requests let in at once, those that waited first, and those refused, by the rule that decided (largest count first)."""

    policy: str
    reservation: Reservation
    let_in_at_once: int
    waited: int
    refused: dict[str, int]


class Fronts:
    """The policies of a run's replicas, with what they decided. `aims` of the settings' SLO are deadlines where requests name none."""

    def __init__(self, choice: Choice, settings: SimulationSettings) -> None:
        self._choice = choice
        self._settings = settings
        self._chosen = settings_of(choice, settings)
        self._answers: Counter[tuple[Admission, Rule]] = Counter()

    def __call__(self, replica: int) -> AdmissionPolicy:
        """A policy of its own for each replica."""
        del replica
        settings = self._settings
        times = StepTimes(settings.step, step_tokens=settings.scheduler.max_num_batched_tokens)
        counted = _Counted(Policy(self._chosen, times), self._answers)
        slo = settings.slo
        return Aimed(counted, first_token_ps=_ps(slo.ttft_ms), latency_ps=_ps(slo.latency_ms))

    def counts(self) -> AdmissionCounts:
        """What was decided so far."""
        refused = Counter(
            {
                rule.value: count
                for (answer, rule), count in self._answers.items()
                if answer is Admission.REJECT
            }
        )
        return AdmissionCounts(
            policy=self._choice.value,
            reservation=self._chosen.reservation,
            let_in_at_once=self._answers[Admission.ACCEPT, Rule.FITS],
            waited=sum(count for (answer, _), count in self._answers.items() if answer is Admission.QUEUE),
            refused=dict(refused.most_common()),
        )


class _Counted:
    """A policy whose answers are counted: each that waits or is let in at its arrival, each that is refused whenever."""

    def __init__(self, policy: AdmissionPolicy, answers: Counter[tuple[Admission, Rule]]) -> None:
        self._policy = policy
        self._answers = answers
        self.at_progress: Callable[[int, int, int], None] = policy.at_progress
        self.at_end = policy.at_end

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        decision = self._policy.at_arrival(candidate, view, now_ps)
        self._answers[decision.answer, decision.rule] += 1
        return decision

    def at_scheduling(self, view: AdmissionView, now_ps: int) -> Sequence[Decision]:
        decisions = self._policy.at_scheduling(view, now_ps)
        for decision in decisions:
            if decision.answer is Admission.REJECT:
                self._answers[decision.answer, decision.rule] += 1
        return decisions


def _ps(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * (PS_PER_S // 1000))
