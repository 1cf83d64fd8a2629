"""Marks of an axis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.report.chart import Panel, envelope, extremes, powers, round_marks, thinned


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


def test_an_axis_of_powers_has_equal_room_for_equal_ratios() -> None:
    panel = Panel(0, 300, most_x=1.0, least_y=1.0, most_y=1000.0, log_y=True)
    assert [round(panel.y(value)) for value in (1, 10, 100, 1000)] == [300, 200, 100, 0]
    assert panel.y(0.0) == panel.y(-5.0) == panel.y(1.0)


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e9))
def test_marks_of_powers_lie_on_the_axis(least: float, ratio: float) -> None:
    marks = powers(least, least * ratio)
    assert marks == sorted(set(marks))
    assert all(least * (1 - 1e-6) <= mark <= least * ratio * (1 + 1e-6) for mark in marks)
    assert len(marks) <= 25


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40, unique=True), st.integers(1, 12))
def test_thinned_marks_are_few_and_keep_zero(places: list[int], most: int) -> None:
    marks = [float(place) for place in sorted(places)]
    kept = thinned(marks, most)
    assert set(kept) <= set(marks)
    assert len(kept) <= most
    assert 0.0 not in marks or 0.0 in kept


POINTS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400).map(
    lambda ys: [(float(x), y) for x, y in enumerate(ys)]
)


@given(POINTS, st.integers(1, 30))
def test_a_thinned_line_keeps_its_ends_and_extremes(points: list[tuple[float, float]], cells: int) -> None:
    kept = extremes(points, cells)
    assert set(kept) <= set(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {min(y for _, y in kept), max(y for _, y in kept)} == {
        min(y for _, y in points),
        max(y for _, y in points),
    }
    assert len(kept) <= max(4 * cells, 4)


@given(POINTS, st.integers(1, 30))
def test_an_envelope_holds_all_values(points: list[tuple[float, float]], cells: int) -> None:
    low, mean, high = envelope(points, cells)
    assert min(y for _, y in low) == min(y for _, y in points)
    assert max(y for _, y in high) == max(y for _, y in points)
    for (_, least), (_, middle), (_, most) in zip(low, mean, high, strict=True):
        assert least - 1e-6 * abs(least) <= middle <= most + 1e-6 * abs(most)
