"""The default policy in front of an engine: no harm at any load, and what it gains, on a small part of a real trace."""

from __future__ import annotations

import pytest
from tools.admission_table.bound import largest_goodput, least_cost, least_costs
from tools.admission_table.cases import ALONE, DEFAULT, Case, Figures, capacity, figures
from tools.admission_table.scenes import Part

from vramledger.simulation.settings import Scheduling

pytest.importorskip("numpy")

PART = Part(first=0, count=240)


@pytest.fixture(scope="module")
def per_s() -> float:
    return capacity("azure", PART)


def both(per_s: float, load: float, scheduling: Scheduling, *, stays: bool) -> tuple[Figures, Figures]:
    """The engine alone, and with the default in front of it."""
    found = [
        figures(
            Case(
                scene="azure",
                part=PART,
                scheduling=scheduling,
                policy=policy,
                load=load,
                per_s=per_s,
                stays=stays,
            )
        )
        for policy in (ALONE, DEFAULT)
    ]
    return found[0], found[1]


@pytest.mark.parametrize("load", [0.8, 1.3, 2.0])
def test_clients_that_leave_lose_at_most_two_percent(per_s: float, load: float) -> None:
    alone, default = both(per_s, load, Scheduling.VLLM, stays=False)
    assert default.goodput >= 0.98 * alone.goodput
    assert default.preemptions <= alone.preemptions


def test_clients_that_stay_get_more_in_time_with_a_tenth_of_the_preemptions(per_s: float) -> None:
    alone, default = both(per_s, 1.3, Scheduling.VLLM, stays=True)
    assert default.goodput >= 1.3 * alone.goodput
    assert default.preemptions * 10 <= alone.preemptions


def test_an_engine_that_fails_requests_fails_none(per_s: float) -> None:
    alone, default = both(per_s, 1.3, Scheduling.LLAMACPP, stays=False)
    assert alone.failed > 0
    assert default.failed == 0
    assert default.goodput > alone.goodput


def test_no_schedule_is_above_the_bound(per_s: float) -> None:
    costs = least_costs("azure", PART)
    bounds = [largest_goodput(costs, load * per_s) for load in (0.5, 1.0, 1.3, 2.0, 4.0)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == 1.0 > bounds[-1] > 0.0
    # A prompt of 160 tokens and a token more, in a pool of 10 blocks of 16: one step of 6.5 ms takes all of it, and reads 160 tokens; the prompt's
    # 3.2 ms fit into an empty step's floor.
    assert (
        least_cost(160, 0, 2, blocks=10, size=16)
        == 6_500_000_000 + 1_000_000 + 160 * 40_000 + 160 * 80 * 20_000 // 1024
    )
    # Twice what one instance can serve at least costs twice its time: half of equal requests are served.
    assert largest_goodput([1_000_000_000_000] * 10, 2.0) == 0.5
