"""The real policy in front of simulated engines: what it promises, on workloads that overload them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vramledger.admission.books import Pace
from vramledger.admission.policy import Policy
from vramledger.admission.service_time import StepTimes
from vramledger.admission.settings import PolicySettings, QueueBounds, Reservation
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.settings import Fleet, SchedulerSettings, Scheduling, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

MS = 1_000_000_000
STEP = StepModel(
    overhead_ps=MS, floor_ps=0, token_ps=MS // 100, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("a test")
)


def instance(
    *,
    blocks: int = 24,
    size: int = 4,
    max_num_seqs: int = 6,
    budget: int = 24,
    is_ahead: bool = False,
    caching: bool = True,
    windowed: bool = False,
) -> SimulationSettings:
    groups: tuple[BlockGroup, ...] = (BlockGroup(block_tokens=size),)
    if windowed:
        groups += (BlockGroup(kind=GroupKind.WINDOW, block_tokens=size, window_tokens=9),)
    return SimulationSettings(
        layout=PoolLayout(num_blocks=blocks + 1, reserved_blocks=1, groups=groups),
        scheduler=SchedulerSettings(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=64,
            async_scheduling=is_ahead,
            prefix_caching=caching,
        ),
        step=STEP,
    )


def policy_for(simulation: SimulationSettings, reservation: Reservation, **changes: object) -> PolicySettings:
    scheduler = simulation.scheduler
    pace = Pace(
        step_tokens=scheduler.max_num_batched_tokens,
        max_running=scheduler.max_num_seqs,
        lag_steps=int(scheduler.async_scheduling),
    )
    values: dict[str, object] = {
        "layout": simulation.layout,
        "max_model_len": scheduler.max_model_len,
        "max_running": scheduler.max_num_seqs,
        "pace": pace,
        "reservation": reservation,
    }
    return PolicySettings(**(values | changes))  # type: ignore[arg-type]


def run_of(
    simulation: SimulationSettings,
    requests: list[Request],
    policy: Policy,
    *,
    id_tokens: int | None = None,
) -> tuple[list[RequestOutcome], Run]:
    outcomes: list[RequestOutcome] = []
    driver = Driver(simulation, block_tokens=id_tokens, policies=lambda _: policy, ended=outcomes.append)
    run = driver.run(requests)
    return sorted(outcomes, key=lambda outcome: outcome.number), run


@st.composite
def requests_of(draw: st.DrawFn) -> Request:
    prompt = draw(st.integers(1, 50))
    output = draw(st.integers(1, 30))
    depth = draw(st.integers(0, prompt // 4))
    family = draw(st.integers(1, 2))
    return Request(
        arrival_ns=draw(st.integers(0, 40)) * 1_000_000,
        prompt_tokens=prompt,
        output_tokens=output,
        max_output_tokens=output + draw(st.sampled_from([0, 0, 1, 10])),
        blocks=tuple(100 * family + place for place in range(depth)),
        boundary=draw(st.integers(0, 1)),
        tenant=draw(st.integers(0, 2)),
        priority=draw(st.integers(0, 1)),
        branches=draw(st.sampled_from([1, 1, 1, 2])),
        cancel_ns=draw(st.sampled_from([None, None, None, 5_000_000])),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(requests_of(), min_size=1, max_size=25), st.data())
def test_no_evict_never_evicts(requests: list[Request], data: st.DataObject) -> None:
    is_ahead = data.draw(st.booleans())
    simulation = instance(
        blocks=data.draw(st.integers(8, 40)),
        size=data.draw(st.sampled_from([2, 4])),
        budget=data.draw(st.sampled_from([8, 24, 64])),
        is_ahead=is_ahead,
        caching=data.draw(st.booleans()),
        windowed=data.draw(st.booleans()) and not is_ahead,
    )
    policy = Policy(policy_for(simulation, Reservation.NO_EVICT))
    outcomes, run = run_of(simulation, requests, policy, id_tokens=4)
    assert run.counters[0].preemptions == 0
    assert len(outcomes) == len(requests)
    assert {outcome.status for outcome in outcomes} <= {
        Status.FINISHED, Status.CANCELLED, Status.NEVER_FITS, Status.REJECTED,
    }  # fmt: skip
    assert (policy.admitted_count, policy.queued_count, policy.queued_tokens) == (0, 0, 0)
    assert (policy.held_blocks, policy.unsure_blocks, policy.most_blocks) == (0, 0, 0)
    assert (policy.load.decode_seqs, policy.load.kv_tokens, policy.load.prefill_tokens) == (0, 0, 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(requests_of(), min_size=1, max_size=20), st.sampled_from(list(Reservation)), st.booleans())
def test_every_request_has_an_end_and_a_run_is_the_same_twice(
    requests: list[Request], reservation: Reservation, has_deadlines: bool
) -> None:
    if has_deadlines:
        requests = [
            replace(one, first_token_deadline_ns=20_000_000 + 1_000_000 * number)
            for number, one in enumerate(requests)
        ]
    simulation = instance()

    def once() -> tuple[list[RequestOutcome], Run, Policy]:
        bounds = QueueBounds(max_requests=12, max_age_ps=200 * MS)
        changes = policy_for(
            simulation,
            reservation,
            queue=bounds,
            quantile=0.5,
            confidence=0.6,
            risk_span_steps=8,
            ageing_ps=20 * MS,
            token_wait_ps=MS // 10,
        )
        policy = Policy(
            changes, StepTimes(simulation.step, step_tokens=simulation.scheduler.max_num_batched_tokens)
        )
        return *run_of(simulation, requests, policy, id_tokens=4), policy

    outcomes, run, policy = once()
    assert [outcome.number for outcome in outcomes] == list(range(len(requests)))
    assert Status.UNFINISHED not in {outcome.status for outcome in outcomes}
    assert (policy.admitted_count, policy.queued_count, policy.queued_tokens) == (0, 0, 0)
    assert once()[:2] == (outcomes, run)
    # What was refused was never begun, and nothing begins after its first token was due.
    for outcome, request in zip(outcomes, requests, strict=True):
        if outcome.status is Status.REJECTED:
            assert outcome.admitted_ps == -1
        due_ns = request.first_token_deadline_ns
        if due_ns is not None and outcome.admitted_ps >= 0:
            assert outcome.admitted_ps <= outcome.sent_ps + due_ns * 1000


def test_two_replicas_that_only_prefill_have_policies_of_their_own() -> None:
    simulation = instance(blocks=24)
    split = replace(
        simulation,
        fleet=Fleet(replicas=2, prefill_replicas=1, link_bytes_per_s=10**9, kv_bytes_per_token=1000),
    )
    policies = [Policy(policy_for(split, Reservation.NO_EVICT)) for _ in range(2)]
    outcomes: list[RequestOutcome] = []
    requests = [Request(arrival_ns=0, prompt_tokens=20, output_tokens=12) for _ in range(6)]
    driver = Driver(split, block_tokens=None, policies=lambda number: policies[number], ended=outcomes.append)
    run = driver.run(requests)
    assert [outcome.status for outcome in outcomes] == [Status.FINISHED] * 6
    assert [counters.preemptions for counters in run.counters] == [0, 0]
    assert [policy.admitted_count for policy in policies] == [0, 0]


def test_what_llamacpps_free_slots_keep_is_room_for_others() -> None:
    # Two slots over 12 blocks: the conversations that ended leave 10 of them in their slots.
    simulation = instance(blocks=12, max_num_seqs=2)
    settings_ = replace(
        simulation,
        scheduler=replace(simulation.scheduler, scheduling=Scheduling.LLAMACPP, prefix_caching=False),
    )
    requests = [
        Request(arrival_ns=number * 400_000_000, prompt_tokens=14, output_tokens=6, max_output_tokens=6)
        for number in range(6)
    ]
    policy = Policy(policy_for(settings_, Reservation.NO_EVICT))
    outcomes, _ = run_of(settings_, requests, policy)
    assert [outcome.status for outcome in outcomes] == [Status.FINISHED] * 6
    assert all(outcome.admitted_ps == outcome.sent_ps for outcome in outcomes)
