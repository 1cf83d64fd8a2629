"""A real engine's knee told by its first seconds: vLLM on an RTX PRO 6000, 300 requests in 29 s, recorded by others (data/traces).

Fitted to the ten requests that had ended after 20 s, of which five more seconds are simulated; those sent from 12 s on waited up to 20 s for a place
among the 128 that run at once, which none of the ten had to.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tools.fidelity.pools import Planned, planned
from tools.fidelity.replay import BOOST, settings_of
from tools.fidelity.runs import MeasuredRun, read_run

from vramledger.experiment.forecast import Forecaster
from vramledger.experiment.result import LatencyModel
from vramledger.simulation.roofline import IDEAL, roofline_step
from vramledger.simulation.settings import Slo
from vramledger.simulation.stages_fit import StagesFit, fit_stages
from vramledger.simulation.step_fit import Timing
from vramledger.simulation.summary import quantiles_of
from vramledger.simulation.timed_run import TimedRun
from vramledger.workload.request import WorkloadHeader

RUN = Path(__file__).parents[2] / "data" / "traces" / "vllm-measured-runs" / "RTXPRO6000_Llama-3.1-8B"
S = 10**12
SEEN_PS = 20 * S
QUEUED_PS = 12 * S


@pytest.fixture(scope="module")
def run() -> MeasuredRun:
    return read_run(RUN)


@pytest.fixture(scope="module")
def made(run: MeasuredRun) -> Planned:
    return planned(run)


@pytest.fixture(scope="module")
def fit(run: MeasuredRun, made: Planned) -> StagesFit:
    seen = [number for number, row in enumerate(run.served) if row.end_ps <= SEEN_PS]
    timed = TimedRun(
        requests=tuple(
            request for request, row in zip(run.requests, run.served, strict=True) if row.sent_ps < SEEN_PS
        ),
        known=tuple(
            Timing(
                number=number,
                first_token_ps=run.served[number].first_token_ps,
                end_ps=run.served[number].end_ps,
            )
            for number in seen
        ),
        block_tokens=16,
    )
    start = roofline_step(made.plan, made.checkpoint, made.device)
    fastest = replace(IDEAL, compute=BOOST)
    return fit_stages(
        [timed],
        replace(settings_of(run, made, start), time_limit_ps=SEEN_PS + 5 * S),
        starts=[start],
        least=roofline_step(made.plan, made.checkpoint, made.device, efficiency=fastest),
        source=run.name,
    )


def test_none_of_the_fitted_requests_had_to_wait(run: MeasuredRun, fit: StagesFit) -> None:
    waited = [row.scheduled_ps - row.sent_ps for row in run.served if row.end_ps <= SEEN_PS]
    assert len(waited) == fit.fitted_requests == 10
    assert max(waited) < 0.2 * S
    late = [row.scheduled_ps - row.sent_ps for row in run.served if row.sent_ps >= QUEUED_PS]
    assert len(late) == 171 and max(late) > 15 * S


def test_the_queue_that_comes_is_foretold(run: MeasuredRun, made: Planned, fit: StagesFit) -> None:
    forecaster = Forecaster(
        settings_of(run, made, fit.step),
        model=LatencyModel(step=fit.step, outside_ns=fit.outside_ps // 1000),
    )
    header = WorkloadHeader(name=run.name, source=run.name, block_tokens=16)
    told = forecaster.foretell(header, run.requests, Slo(ttft_ms=5000.0))
    assert told is not None
    late = [number for number, row in enumerate(run.served) if row.sent_ps >= QUEUED_PS]
    for measured, foretold in (
        (
            [run.served[number].first_token_ps - run.served[number].sent_ps for number in late],
            [told.served[number].ttft_ns for number in late],
        ),
        (
            [run.served[number].end_ps - run.served[number].sent_ps for number in late],
            [told.served[number].latency_ns for number in late],
        ),
    ):
        ours = quantiles_of(value * 1000 for value in foretold if value is not None)
        theirs = quantiles_of(measured)
        assert ours.count == theirs.count
        assert ours.p50 == pytest.approx(theirs.p50, rel=0.1)
        assert ours.p99 == pytest.approx(theirs.p99, rel=0.1)
    good = sum(row.first_token_ps - row.sent_ps <= 5 * S for row in run.served)
    assert told.figures.good == pytest.approx(good, abs=0.05 * len(run.served))
