"""A step model is found again from runs whose engine rests most of the time, and so is what a request takes outside of steps."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from simulated_llamacpp import llamacpp_settings, poisson_requests
from vramledger.errors import InputError
from vramledger.evidence import EvidenceKind, assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.first_step import first_step
from vramledger.simulation.settings import Fleet, SchedulerSettings, SimulationSettings
from vramledger.simulation.stages_fit import StagesFit, fit_stages
from vramledger.simulation.step_fit import Timing
from vramledger.simulation.step_log import NAMES, logged_run
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.timed_run import TimedRun
from vramledger.workload.request import Request

US = 1_000_000
OUTSIDE_PS = 3000 * US
TRUE = StepModel(
    overhead_ps=1500 * US,
    floor_ps=9000 * US,
    token_ps=150 * US,
    decode_seq_ps=900 * US,
    kv_token_ps=US // 2,
    pair_ps_per_1024=2 * US,
    evidence=assumed("this test"),
)
VLLM = SimulationSettings(
    layout=PoolLayout(num_blocks=600, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1),
    scheduler=SchedulerSettings(
        max_num_seqs=32, max_num_batched_tokens=512, max_model_len=2048, async_scheduling=True
    ),
    step=TRUE,
)
LLAMACPP = llamacpp_settings(TRUE, context_len=2048)


def requests(per_s: float, count: int, seed: int) -> tuple[Request, ...]:
    return poisson_requests(per_s, count, seed, longest_prompt_tokens=600, longest_output_tokens=60)


def timed(
    settings: SimulationSettings, per_s: float, *, count: int = 24, seed: int = 1, noise_ps: int = 0
) -> TimedRun:
    """A run as a client of an engine with these settings would time it; its last third is held out."""
    asked, random = requests(per_s, count, seed), Random(seed)
    outcomes, _ = logged_run(asked, settings, None)
    timings = []
    for number in range(count):
        late_ps = OUTSIDE_PS + int(random.random() * noise_ps)
        timings.append(
            Timing(
                number=number,
                first_token_ps=outcomes[number].first_token_ps + late_ps,
                end_ps=outcomes[number].end_ps + OUTSIDE_PS,
            )
        )
    cut = count * 2 // 3
    return TimedRun(requests=asked, known=tuple(timings[:cut]), held_out=tuple(timings[cut:]))


def fitted(settings: SimulationSettings, runs: list[TimedRun]) -> StagesFit:
    return fit_stages(runs, settings, starts=[first_step(runs)], source="this test")


@pytest.mark.parametrize("settings", [VLLM, LLAMACPP], ids=["vllm", "llama.cpp"])
def test_engines_that_rest_between_requests_give_their_step_times_back(settings: SimulationSettings) -> None:
    found = fitted(settings, [timed(settings, 0.5), timed(settings, 3.0, seed=2)])
    assert (found.fitted_requests, found.held_out_requests) == (32, 16)
    assert found.step.evidence.kind is EvidenceKind.MEASURED
    assert found.step.relative_error is not None and found.step.relative_error < 0.02
    assert found.outside_ps == pytest.approx(OUTSIDE_PS, rel=0.5)
    for work in (
        {"tokens": 1, "decode_seqs": 1, "kv_tokens": 300, "pairs": 0},
        {"tokens": 4, "decode_seqs": 4, "kv_tokens": 1200, "pairs": 0},
        {"tokens": 400, "decode_seqs": 0, "kv_tokens": 0, "pairs": 80_000},
    ):
        assert found.step.step_ps(**work) == pytest.approx(TRUE.step_ps(**work), rel=0.05)


def test_clients_clocks_that_jitter_by_a_millisecond_do_not_matter() -> None:
    runs = [timed(VLLM, 0.5, noise_ps=1000 * US), timed(VLLM, 3.0, seed=2, noise_ps=1000 * US)]
    found = fitted(VLLM, runs)
    assert found.step.relative_error is not None and found.step.relative_error < 0.03
    work = {"tokens": 4, "decode_seqs": 4, "kv_tokens": 1200, "pairs": 0}
    assert found.step.step_ps(**work) == pytest.approx(TRUE.step_ps(**work), rel=0.05)


def test_what_is_held_out_is_not_fitted_to() -> None:
    clean = [timed(VLLM, 2.0)]
    spoilt = [
        replace(run, held_out=tuple(replace(timing, end_ps=timing.end_ps * 3) for timing in run.held_out))
        for run in clean
    ]
    one, other = fitted(VLLM, clean), fitted(VLLM, spoilt)
    assert replace(one.step, relative_error=None) == replace(other.step, relative_error=None)
    assert other.step.relative_error is not None and other.step.relative_error > 0.5


def test_no_constant_falls_below_the_devices_bound() -> None:
    high = replace(TRUE, overhead_ps=1, floor_ps=12_000 * US, kv_token_ps=US)
    run = timed(VLLM, 1.0)
    found = fit_stages([run], VLLM, starts=[high], least=high, source="this test")
    for name in NAMES:
        assert getattr(found.step, name) >= getattr(high, name)


def test_the_part_of_a_step_before_a_request_came_is_not_its_time() -> None:
    asked = requests(6.0, 12, seed=3)
    outcomes, log = logged_run(asked, LLAMACPP, None)
    constants = [getattr(TRUE, name) for name in NAMES]
    for outcome in outcomes.values():
        work = log.since(outcome.sent_ps, outcome.first_token_ps)
        spent_ps = sum(one * two for one, two in zip(work, constants, strict=True))
        assert spent_ps == pytest.approx(outcome.first_token_ps - outcome.sent_ps, rel=1e-6)


def test_where_a_fit_may_start_is_told_by_the_fastest() -> None:
    run = timed(VLLM, 0.2)
    step = first_step([run])
    assert step.step_ps(tokens=1, decode_seqs=1, kv_tokens=300, pairs=0) == pytest.approx(
        TRUE.step_ps(tokens=1, decode_seqs=1, kv_tokens=300, pairs=0), rel=0.3
    )
    with pytest.raises(InputError, match="two tokens"):
        first_step([TimedRun(requests=run.requests, known=())])


def test_too_few_times_and_several_replicas_are_refused() -> None:
    run = timed(VLLM, 1.0)
    with pytest.raises(InputError, match="7 timed requests: at least 8"):
        fit_stages([replace(run, known=run.known[:7])], VLLM, starts=[TRUE], source="this test")
    with pytest.raises(InputError, match="one replica"):
        fit_stages([run], replace(VLLM, fleet=Fleet(replicas=2)), starts=[TRUE], source="this test")
    with pytest.raises(InputError, match="comes before its first"):
        early = replace(run.known[0], end_ps=run.known[0].first_token_ps - 1)
        fit_stages([replace(run, known=(early, *run.known[1:]))], VLLM, starts=[TRUE], source="this test")


def test_slow_moments_are_not_taken_for_the_cost_of_a_long_context() -> None:
    """Prompts that were the slower the longer they were, by more than any model's attention takes: pairs that cost so much would make a
    prompt of thirty times the length take minutes."""
    run = timed(VLLM, 0.5, count=24)
    slow = []
    for timing in run.known:
        late_ps = 400_000 * US * run.requests[timing.number].prompt_tokens ** 2 // 600**2
        slow.append(
            replace(timing, first_token_ps=timing.first_token_ps + late_ps, end_ps=timing.end_ps + late_ps)
        )
    step = fitted(VLLM, [replace(run, known=tuple(slow))]).step
    lone_ps = step.step_ps(tokens=1, decode_seqs=1, kv_tokens=0, pairs=0)
    assert step.pair_ps_per_1024 <= step.token_ps + 1
    assert step.step_ps(tokens=1, decode_seqs=1, kv_tokens=3072, pairs=0) <= 2.01 * lone_ps


def test_of_models_that_each_match_some_runs_the_one_that_matches_most_runs_goes() -> None:
    """An engine that shares its core with its clients is slower in a crowd than its steps say, and a crowd has most of the requests."""
    slow = replace(TRUE, floor_ps=2 * TRUE.floor_ps)
    light = [timed(VLLM, per_s, count=12, seed=seed) for seed, per_s in enumerate((0.5, 1.0, 1.5, 2.0), 1)]
    crowded = [timed(replace(VLLM, step=slow), 20.0, count=180, seed=seed) for seed in (5, 6)]
    found = fit_stages([*light, *crowded], VLLM, starts=[slow, TRUE], rounds=2, source="this test")
    assert found.step.floor_ps == TRUE.floor_ps
