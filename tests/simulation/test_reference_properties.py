"""What holds of every run, whatever arrives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.schedulers.sequence import lengths_of
from vramledger.simulation.settings import Fleet, Router, SchedulerSettings, SimulationSettings, ToolWait
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

STEP = StepModel(
    overhead_ps=1_000_003, floor_ps=500_009, token_ps=10_007, decode_seq_ps=1_009, kv_token_ps=101,
    pair_ps_per_1024=13, evidence=assumed("primes"),
)  # fmt: skip
MAX_MODEL_LEN = 96


@st.composite
def layouts(draw: st.DrawFn) -> PoolLayout:
    size = draw(st.sampled_from([4, 8, 16]))
    groups = [BlockGroup(block_tokens=size)]
    if draw(st.booleans()):
        window, most = 2 * size + 1, 64
        cap = (min(window - 1 + 2 * most, MAX_MODEL_LEN) + size - 1) // size + 1
        groups.append(
            BlockGroup(kind=GroupKind.WINDOW, block_tokens=size, window_tokens=window, admission_blocks=cap)
        )
    least = len(groups) * (MAX_MODEL_LEN // size + 2)
    return PoolLayout(
        num_blocks=draw(st.integers(least // 2, 3 * least)), groups=tuple(groups), reserved_blocks=1
    )


@st.composite
def settings_of_runs(draw: st.DrawFn) -> SimulationSettings:
    replicas = draw(st.integers(1, 3))
    prefill_replicas = draw(st.integers(0, replicas - 1))
    return SimulationSettings(
        layout=draw(layouts()),
        scheduler=SchedulerSettings(
            max_num_seqs=draw(st.integers(1, 9)),
            max_num_batched_tokens=draw(st.integers(1, 64)),
            max_model_len=MAX_MODEL_LEN,
            prefix_caching=draw(st.booleans()),
            priority=draw(st.booleans()),
            long_prefill_token_threshold=draw(st.sampled_from([0, 0, 7])),
            watermark=draw(st.sampled_from([0.0, 0.1])),
            reserve_full_prompt=draw(st.booleans()),
            async_scheduling=draw(st.booleans()),
        ),
        step=STEP,
        fleet=Fleet(
            replicas=replicas,
            router=draw(st.sampled_from(list(Router))),
            prefill_replicas=prefill_replicas,
            link_bytes_per_s=draw(st.sampled_from([0, 10**9])),
            kv_bytes_per_token=1000,
        ),
        tool_wait=ToolWait.RELEASE if prefill_replicas else draw(st.sampled_from(list(ToolWait))),
        host_link_bytes_per_s=10**10,
        host_swap_bytes=draw(st.sampled_from([50_000, 10**9])),
    )


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    requests: list[Request] = []
    arrival_ns = 0
    for number in range(draw(st.integers(1, 14))):
        arrival_ns += draw(st.sampled_from([0, 0, 1, 2_000, 100_000]))
        output_tokens = draw(st.integers(1, 40))
        times = st.none() | st.integers(0, 60_000)
        requests.append(
            Request(
                arrival_ns=arrival_ns,
                prompt_tokens=draw(st.integers(1, MAX_MODEL_LEN + 2)),
                output_tokens=output_tokens,
                max_output_tokens=draw(st.sampled_from([None, output_tokens + 3])),
                blocks=tuple(draw(st.lists(st.integers(0, 1), max_size=8))),
                boundary=draw(st.integers(0, 1)),
                parent=draw(st.none() | st.integers(0, number - 1)) if number else None,
                pause_ns=draw(st.sampled_from([0, 3_000])),
                branches=draw(st.sampled_from([1, 1, 1, 3])),
                cancel_ns=draw(times) if draw(st.booleans()) else None,
                first_token_deadline_ns=draw(times) if draw(st.booleans()) else None,
                priority=draw(st.integers(0, 2)),
            )
        )
    return [chained(request) for request in requests]


def chained(request: Request) -> Request:
    """Contents 0 and 1 become identities of what lies before them too."""
    blocks = []
    before = 1
    for content in request.blocks:
        before = 2 * before + content
        blocks.append(before)
    return replace(request, blocks=tuple(blocks))


def driven(settings: SimulationSettings, requests: list[Request]) -> tuple[Driver, Run, list[RequestOutcome]]:
    outcomes: list[RequestOutcome] = []
    driver = Driver(settings, block_tokens=16, samples=16, ended=outcomes.append)
    run = driver.run(requests)
    return driver, run, sorted(outcomes, key=lambda outcome: outcome.number)


@given(settings=settings_of_runs(), requests=request_lists())
def test_every_run_keeps_the_rules(settings: SimulationSettings, requests: list[Request]) -> None:
    driver, run, outcomes = driven(settings, requests)
    every_request_ends_once(requests, outcomes, run)
    everything_is_given_back(driver)
    samples_are_equally_spaced_and_account_for_every_block(settings, run)
    tokens_are_computed_once_but_for_hits_and_what_preemption_lost(settings, requests, outcomes, run)
    if not settings.scheduler.priority and not settings.fleet.prefill_replicas:
        first_come_is_first_admitted(outcomes)
    assert driven(settings, requests)[1:] == (run, outcomes)


def every_request_ends_once(requests: list[Request], outcomes: list[RequestOutcome], run: Run) -> None:
    assert [outcome.number for outcome in outcomes] == list(range(len(requests)))
    for outcome, request in zip(outcomes, requests, strict=True):
        assert outcome.status not in (Status.UNFINISHED, Status.LIVELOCKED)
        times = [outcome.sent_ps, outcome.admitted_ps, outcome.first_token_ps, outcome.end_ps]
        known = [time for time in times if time >= 0]
        assert known == sorted(known)
        assert run.end_ps >= outcome.end_ps >= outcome.sent_ps >= 0
        if outcome.status is Status.FINISHED:
            output_tokens, _ = lengths_of(request, MAX_MODEL_LEN)
            assert outcome.output_tokens == output_tokens * request.branches
            assert -1 not in times


def everything_is_given_back(driver: Driver) -> None:
    for replica in driver.replicas:
        assert replica.used_blocks == 0
        assert replica.scheduler.pool.logical_tokens == replica.scheduler.pool.physical_tokens == 0


def samples_are_equally_spaced_and_account_for_every_block(settings: SimulationSettings, run: Run) -> None:
    times = sorted({sample.at_ps for sample in run.samples})
    assert len(times) < 32
    assert len(run.samples) == len(times) * settings.fleet.replicas
    assert {late - early for early, late in pairwise(times)} <= {times[1] if times[1:] else 0}
    for sample in run.samples:
        assert sample.used_blocks + sample.cached_blocks + sample.free_blocks == settings.layout.usable_blocks
        if settings.layout.is_plain:
            assert sample.physical_tokens <= sample.logical_tokens


def tokens_are_computed_once_but_for_hits_and_what_preemption_lost(
    settings: SimulationSettings, requests: list[Request], outcomes: list[RequestOutcome], run: Run
) -> None:
    if any(outcome.status is not Status.FINISHED for outcome in outcomes):
        return
    owed = 0
    for outcome, request in zip(outcomes, requests, strict=True):
        output_tokens, max_output_tokens = lengths_of(request, MAX_MODEL_LEN)
        owed += request.branches * (request.prompt_tokens + output_tokens - 1)
        owed += outcome.recomputed_tokens - outcome.hit_tokens
        if settings.scheduler.async_scheduling and max_output_tokens > output_tokens:
            # The token after one that ends a sequence unforeseen is on its way already, unless there is no block for it.
            owed += request.branches
    computed = sum(counters.computed_tokens for counters in run.counters)
    if settings.scheduler.async_scheduling or any(outcome.preemptions for outcome in outcomes):
        assert computed <= owed  # Back from preemption, it may hit what others have computed meanwhile.
    else:
        assert computed == owed


def first_come_is_first_admitted(outcomes: list[RequestOutcome]) -> None:
    order = sorted(outcomes, key=lambda outcome: (outcome.replica, outcome.sent_ps, outcome.number))
    for early, late in pairwise(outcome for outcome in order if outcome.admitted_ps >= 0):
        assert early.replica != late.replica or early.admitted_ps <= late.admitted_ps


def test_a_number_of_samples_does_not_change_the_run() -> None:
    requests = [Request(arrival_ns=0, prompt_tokens=40, output_tokens=30) for _ in range(5)]
    settings = SimulationSettings(
        layout=PoolLayout(num_blocks=20, groups=(BlockGroup(block_tokens=8),)),
        scheduler=SchedulerSettings(max_num_seqs=4, max_num_batched_tokens=32, max_model_len=96),
        step=STEP,
    )
    ends: list[Any] = []
    for samples in (1, 7, 500):
        outcomes: list[RequestOutcome] = []
        run = Driver(settings, block_tokens=None, samples=samples, ended=outcomes.append).run(requests)
        ends.append((run.end_ps, run.counters, outcomes))
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][0] > 0


@pytest.mark.parametrize("router", list(Router))
def test_replicas_share_the_work(router: Router) -> None:
    requests = [Request(arrival_ns=0, prompt_tokens=40, output_tokens=30) for _ in range(6)]
    settings = SimulationSettings(
        layout=PoolLayout(num_blocks=200, groups=(BlockGroup(block_tokens=8),)),
        scheduler=SchedulerSettings(max_num_seqs=4, max_num_batched_tokens=32, max_model_len=96),
        step=STEP,
        fleet=Fleet(replicas=3, router=router),
    )
    _, _, outcomes = driven(settings, requests)
    assert sorted(outcome.replica for outcome in outcomes) == [0, 0, 1, 1, 2, 2]
