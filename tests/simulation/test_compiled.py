"""The compiled simulator does what the readable one does, bit for bit."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

pytest.importorskip("numba")

from tools.simulation_oracle import Case, difference, random_case, workload_of

from vramledger.errors import InputError
from vramledger.simulation.outcome_columns import OutcomeColumns
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import Fleet, Scheduling
from vramledger.workload.request import Request


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(random=st.randoms(use_true_random=False))
def test_any_workload_over_any_settings_ends_the_same(random: Random) -> None:
    assert difference(random_case(random)) is None


@pytest.mark.parametrize("seed", range(60))
def test_small_pools_that_preempt_share_and_starve(seed: int) -> None:
    assert difference(random_case(Random(seed))) is None


def a_case() -> Case:
    case = random_case(Random(1))
    requests = tuple(replace(request, parent=None) for request in case.requests)
    return replace(case, requests=requests, settings=replace(case.settings, time_limit_ps=None), batch=2)


def test_batches_go_out_in_order_as_they_come_in() -> None:
    case = a_case()
    given_out: list[OutcomeColumns] = []
    run, nothing = simulate(workload_of(case), case.settings, how="compiled", sink=given_out.append)
    whole_run, whole = simulate(workload_of(case), case.settings, how="compiled")
    assert nothing is None
    assert whole is not None
    assert run == whole_run
    assert [number for part in given_out for number in part.number] == list(range(len(case.requests)))
    assert [row for part in given_out for row in part.outcomes()] == list(whole.outcomes())


def test_what_is_not_covered_is_named_or_left_to_the_readable_one() -> None:
    case = a_case()
    fleet = replace(case.settings, fleet=Fleet(replicas=2, prefill_replicas=1))
    with pytest.raises(InputError, match="does not cover"):
        simulate(workload_of(case), fleet, how="compiled")
    run, _ = simulate(workload_of(case), fleet)
    assert not run.is_compiled
    assert "does not cover" in run.notes[0]


def test_branches_are_left_to_the_readable_one() -> None:
    case = a_case()
    branched = replace(case, requests=(*case.requests[:-1], replace(case.requests[-1], branches=2)))
    with pytest.raises(InputError, match="branches"):
        simulate(workload_of(branched), branched.settings, how="compiled")


def test_a_small_workload_is_not_worth_machine_code() -> None:
    case = a_case()
    run, _ = simulate(workload_of(case), case.settings)
    assert not run.is_compiled
    assert run.notes == ()


def test_a_step_planned_ahead_computes_one_token_more_where_more_are_expected() -> None:
    case = a_case()
    scheduler = replace(
        case.settings.scheduler,
        scheduling=Scheduling.VLLM,
        async_scheduling=True,
        priority=False,
        long_prefill_token_threshold=0,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=400,
    )
    layout = replace(case.settings.layout, num_blocks=400)
    requests = tuple(
        Request(arrival_ns=0, prompt_tokens=5, output_tokens=3, max_output_tokens=most) for most in (3, 9)
    )
    counters = []
    for request in requests:
        alone = replace(
            case,
            requests=(request,),
            settings=replace(case.settings, scheduler=scheduler, layout=layout),
        )
        assert difference(alone) is None
        run, _ = simulate(workload_of(alone), alone.settings, how="compiled")
        counters.append(run.counters[0].computed_tokens)
    assert counters == [7, 8]
