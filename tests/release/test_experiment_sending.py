"""What the stages of an experiment send."""

from __future__ import annotations

import pytest

from experiment_values import check
from vramledger.experiment.plan import Step
from vramledger.release.experiment.apart import of_cancellation


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
