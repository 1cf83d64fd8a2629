"""What is foretold of an engine is what it does, when it is the engine that is simulated; and nothing is known before it was measured."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from simulated_llamacpp import llamacpp_settings, poisson_requests
from vramledger.evidence import assumed
from vramledger.experiment.forecast import Forecaster, StageRun
from vramledger.experiment.forecast_error import forecast_errors
from vramledger.experiment.plan import Kind, Step
from vramledger.experiment.result import LatencyModel, LoadFigures, Stage
from vramledger.experiment.served import Served
from vramledger.experiment.timed_run import timed_run
from vramledger.simulation.settings import Slo
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.summary import Quantiles
from vramledger.workload.request import Request, WorkloadHeader

pytest.importorskip("numpy")

US = 1_000_000
HEADER = WorkloadHeader(name="this test", source="this test")
SLO = Slo(ttft_ms=500.0, tpot_ms=40.0)
TRUE = StepModel(
    overhead_ps=1500 * US,
    floor_ps=9000 * US,
    token_ps=150 * US,
    decode_seq_ps=900 * US,
    kv_token_ps=US // 2,
    evidence=assumed("this test"),
)
SETTINGS = llamacpp_settings(TRUE, context_len=1024)


def requests(per_s: float, count: int, seed: int) -> tuple[Request, ...]:
    return poisson_requests(per_s, count, seed, longest_prompt_tokens=300, longest_output_tokens=40)


def engine() -> Forecaster:
    """The engine itself, as far as these tests are concerned: 3 ms outside of its steps."""
    return Forecaster(SETTINGS, model=LatencyModel(step=TRUE, outside_ns=3_000_000))


def stage(name: str, per_s: float, seed: int, count: int = 24) -> StageRun:
    asked = requests(per_s, count, seed)
    found = engine().foretell(HEADER, asked, SLO)
    assert found is not None
    return StageRun(name=name, header=HEADER, requests=asked, served=found.served)


def test_nothing_is_foretold_before_anything_is_measured() -> None:
    forecaster = Forecaster(SETTINGS)
    assert forecaster.step is None
    assert forecaster.forecast(HEADER, requests(1.0, 5, 1), SLO) is None
    assert forecaster.fit([stage("few", 1.0, 1, count=6)]) is None
    assert Forecaster(SETTINGS, knows_step=True).forecast(HEADER, requests(1.0, 5, 1), SLO) is not None


def test_a_load_that_was_never_sent_is_foretold_from_lighter_ones() -> None:
    """Fitted where a request is mostly alone, told where four slots are full and requests wait for seconds."""
    forecaster = Forecaster(SETTINGS)
    model = forecaster.fit([stage("0.5/s", 0.5, 1), stage("2/s", 2.0, 2)])
    assert model is not None and model.stages == ("0.5/s", "2/s")
    assert (model.fitted_requests, model.held_out_requests) == (32, 16)
    assert model.relative_error is not None and model.relative_error < 0.02
    asked = requests(12.0, 60, 3)
    truth = engine().forecast(HEADER, asked, SLO)
    told = forecaster.forecast(HEADER, asked, SLO)
    assert truth is not None and told is not None
    assert truth.goodput < 0.8
    assert told.goodput == pytest.approx(truth.goodput, abs=0.05)
    assert told.ttft_ns.p99 == pytest.approx(truth.ttft_ns.p99, rel=0.05)
    assert told.tpot_ns.p50 == pytest.approx(truth.tpot_ns.p50, rel=0.05)
    assert told.output_tokens == truth.output_tokens


def test_a_fit_goes_on_from_the_one_that_was_kept() -> None:
    runs = [stage("0.5/s", 0.5, 1), stage("2/s", 2.0, 2)]
    first = Forecaster(SETTINGS)
    model = first.fit(runs)
    again = Forecaster(SETTINGS, model=model)
    asked = requests(6.0, 20, 5)
    assert again.forecast(HEADER, asked, SLO) == first.forecast(HEADER, asked, SLO)
    assert again.fit([]) is model


def test_turns_follow_their_parents_and_find_what_those_left() -> None:
    asked = (
        Request(arrival_ns=0, prompt_tokens=200, output_tokens=20, blocks=tuple(range(14))),
        Request(
            arrival_ns=0,
            prompt_tokens=300,
            output_tokens=20,
            blocks=tuple(range(19)),
            parent=0,
            pause_ns=1_000_000_000,
        ),
    )
    found = engine().foretell(replace(HEADER, block_tokens=16), asked, SLO)
    assert found is not None
    first, second = found.served
    assert second.due_ns == first.end_ns + 1_000_000_000
    assert (first.cached_prompt_tokens, second.cached_prompt_tokens) == (0, 219)
    assert found.figures.cached_prompt_tokens == 219


def test_clients_that_leave_and_those_that_never_fit_are_told_as_live_ones_are() -> None:
    asked = (
        Request(arrival_ns=0, prompt_tokens=100, output_tokens=400, cancel_ns=2_000_000_000),
        Request(arrival_ns=0, prompt_tokens=100, output_tokens=400, deadline_ns=1_000_000_000),
        Request(arrival_ns=0, prompt_tokens=2000, output_tokens=10),
        Request(arrival_ns=0, prompt_tokens=100, output_tokens=10),
    )
    found = engine().foretell(HEADER, asked, SLO)
    assert found is not None
    cancelled, expired, never, whole = found.served
    assert (cancelled.left, cancelled.whole, cancelled.is_good(SLO)) == (True, False, True)
    assert (expired.left, expired.whole, expired.is_good(SLO)) == (True, False, False)
    assert (never.status, never.whole, never.first_token_ns) == (400, False, -1)
    assert whole.whole and whole.is_good(SLO)
    figures = found.figures
    assert (figures.offered, figures.finished, figures.left, figures.failed) == (4, 1, 2, 1)
    assert figures.good == 2
    assert figures.running_peak == 3


def row(number: int, **changes: int | bool | str | None) -> Served:
    known: dict[str, int | bool | str | None] = {
        "number": number,
        "due_ns": number * 10**9,
        "sent_ns": number * 10**9 + 1000,
        "first_token_ns": number * 10**9 + 50_000_000,
        "last_token_ns": number * 10**9 + 150_000_000,
        "end_ns": number * 10**9 + 151_000_000,
        "asked_prompt_tokens": 100,
        "asked_output_tokens": 11,
        "prompt_tokens": 101,
        "output_tokens": 11,
        "status": 200,
        "whole": True,
    }
    return Served(**(known | changes))  # type: ignore[arg-type]


def test_a_stage_is_fitted_to_as_the_engine_saw_it() -> None:
    asked = tuple(Request(arrival_ns=i * 10**9, prompt_tokens=100, output_tokens=11) for i in range(6))
    rows = (
        row(4, waited_to_retry_ns=2 * 10**9, first_token_ns=6_060_000_000, last_token_ns=6_150_000_000),
        row(0),
        row(1, status=429, whole=False, first_token_ns=-1, last_token_ns=-1, output_tokens=None),
        row(
            2,
            whole=False,
            left=True,
            first_token_ns=-1,
            last_token_ns=-1,
            end_ns=2_500_000_000,
            output_tokens=None,
        ),
        row(3, output_tokens=5),
        row(5, status=500, whole=False, first_token_ns=-1, last_token_ns=-1),
    )
    run = timed_run(HEADER, asked, rows)
    assert [request.arrival_ns for request in run.requests] == [
        1000,
        2_000_001_000,
        3_000_001_000,
        6_000_001_000,
    ]
    assert [request.output_tokens for request in run.requests] == [11, 11, 5, 11]
    assert [request.prompt_tokens for request in run.requests] == [101, 101, 101, 101]
    assert [request.cancel_ns for request in run.requests] == [None, 499_999_000, None, None]
    assert [timing.number for timing in run.known] == [0, 2]
    assert [timing.number for timing in run.held_out] == [3]
    assert run.known[0].first_token_ps == 50_000_000_000
    # 11 tokens, and none of who left before the first.
    assert len(timed_run(HEADER, asked, rows, most_tokens=15).requests) == 2


def test_errors_are_of_the_measured_figure() -> None:
    measured = LoadFigures(
        offered=10,
        good=8,
        finished=10,
        preemptions=0,
        ttft_ns=Quantiles(count=10, mean=100.0, p50=100, p99=200),
    )
    forecast = replace(
        measured, good=9, preemptions=3, ttft_ns=Quantiles(count=10, mean=110.0, p50=90, p99=300)
    )
    made = Stage(
        step=Step.SHORT,
        name="short-1",
        kind=Kind.SHORT,
        per_s=1.0,
        seconds=10.0,
        seed=0,
        began_s=0.0,
        ended_s=10.0,
        records="records/short-1.parquet",
        measured=measured,
        forecast=forecast,
    )
    found = {error.figure: error for error in forecast_errors([made, replace(made, forecast=None)])}
    assert found["ttft_ns mean"].relative == pytest.approx(0.1)
    assert found["ttft_ns p50"].relative == pytest.approx(-0.1)
    assert found["ttft_ns p99"].relative == pytest.approx(0.5)
    assert found["goodput"].relative == pytest.approx(0.125)
    assert found["preemptions"].relative == 1.0
    assert found["finished"].relative == 0.0
    assert "tpot_ns mean" not in found
    assert all(error.stage == "short-1" for error in found.values())
