"""A step model is found again from the run that was made with it."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.evidence import EvidenceKind, assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.outcome import RequestOutcome
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings
from vramledger.simulation.step_fit import Fit, StepRecord, Timing, fit_records, fit_run
from vramledger.simulation.step_log import NAMES, RunLog, logged_run
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

US = 1_000_000


def model(**constants: int) -> StepModel:
    known = {
        "overhead_ps": 1000 * US,
        "floor_ps": 9000 * US,
        "token_ps": 50 * US,
        "decode_seq_ps": 20 * US,
        "kv_token_ps": US // 5,
    }
    return StepModel(**(known | constants), evidence=assumed("this test"))


TRUE = model()
START = model(
    overhead_ps=2000 * US, floor_ps=6000 * US, token_ps=80 * US, decode_seq_ps=10 * US, kv_token_ps=US // 8
)
LEAST = model(overhead_ps=0, floor_ps=5000 * US, token_ps=0, decode_seq_ps=0, kv_token_ps=US // 10)


def requests(count: int, seed: int = 1) -> list[Request]:
    random = Random(seed)
    now, made = 0, []
    for _ in range(count):
        now += int(random.expovariate(20) * 1e9)
        made.append(
            Request(
                arrival_ns=now, prompt_tokens=random.randint(20, 900), output_tokens=random.randint(5, 60)
            )
        )
    return made


def settings(step: StepModel, blocks: int = 150) -> SimulationSettings:
    return SimulationSettings(
        layout=PoolLayout(num_blocks=blocks, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1),
        scheduler=SchedulerSettings(
            max_num_seqs=12, max_num_batched_tokens=512, max_model_len=2048, async_scheduling=True
        ),
        step=step,
    )


def run(asked: list[Request], given: SimulationSettings) -> list[RequestOutcome]:
    outcomes: list[RequestOutcome] = []
    Driver(given, block_tokens=None, samples=2, ended=outcomes.append).run(asked)
    return sorted(outcomes, key=lambda outcome: outcome.number)


def timings_of(outcomes: list[RequestOutcome]) -> list[Timing]:
    return [
        Timing(number=outcome.number, first_token_ps=outcome.first_token_ps, end_ps=outcome.end_ps)
        for outcome in outcomes
    ]


def fitted(asked: list[Request], timings: list[Timing], rounds: int = 8) -> Fit:
    return fit_run(
        asked, timings, settings(START), block_tokens=None, least=LEAST, source="this test", rounds=rounds
    )


@pytest.fixture(scope="module")
def asked() -> list[Request]:
    return requests(60)


@pytest.fixture(scope="module")
def seen(asked: list[Request]) -> list[Timing]:
    return timings_of(run(asked, settings(TRUE)))


def test_a_run_gives_its_step_times_back(asked: list[Request], seen: list[Timing]) -> None:
    fit = fitted(asked, seen)
    step = fit.step
    assert (fit.fitted_requests, fit.held_out_requests) == (30, 30)
    assert step.evidence.kind is EvidenceKind.MEASURED
    assert step.relative_error is not None and step.relative_error < 0.02
    # What the run tells apart: a decoding step of the usual size, and a prefill token.
    for work in (
        {"tokens": 8, "decode_seqs": 8, "kv_tokens": 4000, "pairs": 0},
        {"tokens": 500, "decode_seqs": 5, "kv_tokens": 2000, "pairs": 0},
    ):
        assert step.step_ps(**work) == pytest.approx(TRUE.step_ps(**work), rel=0.05)
    assert START.step_ps(tokens=500, decode_seqs=5, kv_tokens=2000, pairs=0) > 1.3 * TRUE.step_ps(
        tokens=500, decode_seqs=5, kv_tokens=2000, pairs=0
    )


def test_the_other_half_is_not_looked_at(asked: list[Request], seen: list[Timing]) -> None:
    spoilt = [timing if timing.number < 30 else replace(timing, end_ps=timing.end_ps * 3) for timing in seen]
    clean, other = fitted(asked, seen, rounds=3), fitted(asked, spoilt, rounds=3)
    assert replace(clean.step, relative_error=None) == replace(other.step, relative_error=None)
    assert other.step.relative_error is not None and other.step.relative_error > 0.5


def test_no_constant_falls_below_the_devices_bound(asked: list[Request], seen: list[Timing]) -> None:
    high = model(overhead_ps=0, floor_ps=12_000 * US, token_ps=0, decode_seq_ps=0, kv_token_ps=US // 2)
    fit = fit_run(
        asked,
        seen,
        settings(replace(high, token_ps=80 * US)),
        block_tokens=None,
        least=high,
        source="this test",
        rounds=3,
    )
    assert fit.step.floor_ps >= high.floor_ps
    assert fit.step.kv_token_ps >= high.kv_token_ps


def test_a_runs_log_adds_up_to_its_time(asked: list[Request]) -> None:
    for lag in (False, True):
        given = settings(TRUE)
        given = replace(given, scheduler=replace(given.scheduler, async_scheduling=lag))
        outcomes, log = logged_run(asked, given, None)
        ends = [outcome.end_ps for outcome in outcomes.values()]
        constants = [getattr(TRUE, name) for name in NAMES]

        def spent(start: int, end: int, log: RunLog = log, constants: list[int] = constants) -> float:
            return sum(one * two for one, two in zip(log.between(start, end), constants, strict=True))

        # The requests overlap from the first to the last: there is no lull, and every instant of an end is a step's.
        first = outcomes[0].sent_ps
        for end in ends:
            assert spent(first, end) == pytest.approx(end - first, abs=1)
        assert spent(first, first) == 0


def test_recorded_steps_give_the_model_directly() -> None:
    random = Random(3)
    records = []
    for _ in range(200):
        seqs, chunk = random.randint(1, 60), random.choice([0, 0, 64, 512, 1900])
        work = {
            "tokens": seqs + chunk,
            "decode_seqs": seqs,
            "kv_tokens": random.randint(100, 40_000),
            "pairs": chunk * chunk // 2,
        }
        records.append(StepRecord(**work, duration_ps=TRUE.step_ps(**work)))
    found = fit_records(records, start=START, least=LEAST, source="this test")
    assert found.relative_error is not None and found.relative_error < 0.002
    assert found.kv_token_ps == pytest.approx(TRUE.kv_token_ps, rel=0.02)
    assert found.token_ps == pytest.approx(TRUE.token_ps, rel=0.02)


def test_what_cannot_be_fitted_is_refused(asked: list[Request], seen: list[Timing]) -> None:
    with pytest.raises(InputError, match="at least 8"):
        fitted(asked, seen[:5])
    with pytest.raises(InputError, match="comes before its first"):
        fitted(asked, [replace(seen[0], end_ps=0), *seen[1:]])
    with pytest.raises(InputError, match="the workload has 60"):
        fitted(asked, [*seen, replace(seen[0], number=60)])
    with pytest.raises(InputError, match="comes to its end"):
        fit_run(asked, seen, settings(START, blocks=2), block_tokens=None, least=LEAST, source="this test")
    with pytest.raises(InputError, match="recorded steps"):
        fit_records([], start=START, least=LEAST, source="this test")


def test_a_first_model_far_from_the_engine_is_scaled_to_it(asked: list[Request], seen: list[Timing]) -> None:
    quarter = model(
        overhead_ps=500 * US,
        floor_ps=1500 * US,
        token_ps=20 * US,
        decode_seq_ps=2_500_000,
        kv_token_ps=US // 32,
    )
    least = model(overhead_ps=0, floor_ps=0, token_ps=0, decode_seq_ps=0, kv_token_ps=0)
    for start in (quarter, model(overhead_ps=8000 * US, floor_ps=30_000 * US, token_ps=300 * US)):
        fit = fit_run(
            asked, seen, settings(start), block_tokens=None, least=least, source="this test", rounds=4
        )
        assert fit.step.relative_error is not None and fit.step.relative_error < 0.02
        work = {"tokens": 8, "decode_seqs": 8, "kv_tokens": 4000, "pairs": 0}
        assert fit.step.step_ps(**work) == pytest.approx(TRUE.step_ps(**work), rel=0.05)
