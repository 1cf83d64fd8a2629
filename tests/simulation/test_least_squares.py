"""The small solver against arithmetic that can be seen through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.simulation.least_squares import robust_fit

unknowns = st.lists(st.floats(1, 100), min_size=2, max_size=4)


@given(unknowns, st.randoms(use_true_random=False))
def test_exact_equations_give_their_solution_wherever_one_starts(truth: list[float], random: object) -> None:
    rows = [
        [float((3 * row + 7 * column) % 11 + 1 + row * (column == row % 4)) for column in range(len(truth))]
        for row in range(12)
    ]
    values = [sum(one * two for one, two in zip(row, truth, strict=True)) for row in rows]
    found = robust_fit(
        rows, values, lower=[0.0] * len(truth), start=[10.0] * len(truth), trust=1e-12, tolerance=1e-3
    )
    refit = [sum(one * two for one, two in zip(row, found, strict=True)) for row in rows]
    assert refit == pytest.approx(values, rel=1e-3)


def test_a_bound_holds_and_the_others_make_the_best_of_it() -> None:
    # y = -1 + 2 x: with an intercept that may not be negative the best line goes through the origin.
    rows = [[1.0, float(x)] for x in range(1, 11)]
    values = [2.0 * x - 1 for x in range(1, 11)]
    intercept, slope = robust_fit(
        rows, values, lower=[0.0, 0.0], start=[1.0, 1.0], trust=1e-12, tolerance=1e-3
    )
    assert intercept == 0.0
    assert 1.8 < slope < 2.0


def test_a_row_far_off_counts_little() -> None:
    rows = [[1.0, float(x)] for x in range(20)]
    values = [5.0 + 3 * x for x in range(20)]
    values[7] = 1000.0
    assert robust_fit(
        rows, values, lower=[0.0, 0.0], start=[1.0, 1.0], trust=1e-12, tolerance=1e-3
    ) == pytest.approx([5, 3], rel=1e-2)


def test_what_the_rows_leave_open_stays_at_the_start() -> None:
    rows = [[1.0, 1.0]] * 5
    one, other = robust_fit(rows, [10.0] * 5, lower=[0.0, 0.0], start=[2.0, 6.0], trust=1e-5, tolerance=1e-3)
    assert one + other == pytest.approx(10, rel=1e-3)
    assert 2.0 < one < other


def test_without_rows_there_is_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        robust_fit([], [], lower=[0.0], start=[1.0], trust=1e-5, tolerance=1e-3)
