"""Marks of an axis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.report.chart import round_marks


@pytest.mark.parametrize(
    ("least", "most", "marks"),
    [
        (0, 2674, [0, 500, 1000, 1500, 2000, 2500]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (10.2, 14.1, [10.5, 11, 11.5, 12, 12.5, 13, 13.5, 14]),
        (3, 3, []),
    ],
)
def test_marks_are_round(least: float, most: float, marks: list[float]) -> None:
    assert round_marks(least, most) == pytest.approx(marks)


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e12))
def test_marks_lie_on_the_axis_and_are_four_to_eleven(least: float, extent: float) -> None:
    marks = round_marks(least, least + extent)
    slack = 1e-6 * (abs(least) + extent)
    assert 4 <= len(marks) <= 11
    assert all(least - slack <= mark <= least + extent + slack for mark in marks)
