"""What the stages of an experiment send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiment_values import check
from vramledger.experiment.misses import failures_text
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.served import Served
from vramledger.experiment.shapes import stage_requests
from vramledger.release.experiment.apart import of_cancellation
from vramledger.release.experiment.sending import long_enough_s


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), per_s=st.floats(0.05, 2.0))
def test_a_stage_lasts_until_as_many_requests_came_as_the_plan_wants(seed: int, per_s: float) -> None:
    plan = ExperimentPlan(arrivals="gamma", burstiness=3.0)

    def requests_in(lasts_s: float) -> int:
        _, requests = stage_requests(
            plan, Kind.MIXED, per_s=per_s, seconds=lasts_s, seed=seed, context_len=512, pool_tokens=None, source=None
        )  # fmt: skip
        return len(requests)

    lasts_s = long_enough_s(requests_in, 6 / per_s, 6)
    assert requests_in(lasts_s) >= 6
    assert lasts_s >= 6 / per_s
    assert long_enough_s(lambda _: 6, 1.0, 6) == 1.0
    assert long_enough_s(lambda _: 0, 1.0, 6) < 100.0


@pytest.mark.parametrize(("left", "passed"), [(0, None), (1, True), (7, True)])
def test_kv_that_came_back_after_cancellation_is_said_only_where_a_client_left(
    left: int, passed: bool | None
) -> None:
    back = check("kv_returned", Step.DISTURBED, passed=True, words="all came back to the pool")
    found = of_cancellation(back, left)
    assert found.name == "kv_returned_after_cancellation"
    assert found.passed is passed
    assert (f"{left} client" in found.words) == bool(left)
    other = check("requests_ended", Step.DISTURBED, passed=True)
    assert of_cancellation(other, left) == other


def test_what_failed_is_told_by_how_often_and_with_which_code() -> None:
    def row(number: int, **fields: Any) -> Served:
        return Served(number=number, due_ns=0, asked_prompt_tokens=1, asked_output_tokens=1, **fields)

    served = (
        row(0, whole=True, status=200),
        row(1, left=True, status=200),
        row(2, status=503),
        row(3, status=200, error="500"),
        row(4, status=200, error="500"),
        row(5, status=404),
    )
    assert failures_text(served) == "3 requests failed: 500 (2), status 404 (1)"
    assert failures_text(served[:3]) == ""
