from __future__ import annotations

from math import exp, log
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.workload.columnar.length_table import CELLS, LengthTable, random_words
from vramledger.workload.quantiles import PLACES, Quantiles, constant

REPORTS = Quantiles(p50=8192, p95=20480, p99=40960)


@st.composite
def quantiles(draw: st.DrawFn) -> Quantiles:
    names = ["min", *PLACES, "max"]
    values = sorted(draw(st.lists(st.integers(1, 200_000), min_size=len(names), max_size=len(names))))
    left_out = draw(st.sets(st.sampled_from([name for name in names if name not in ("p50", "p95", "p99")])))
    return Quantiles(
        **{name: value for name, value in zip(names, values, strict=True) if name not in left_out}
    )


@given(quantiles())
def test_known_quantiles_are_kept_and_nothing_falls(given_: Quantiles) -> None:
    for place, value in given_.points:
        assert given_.at(place) == value
    values = [given_.at(place / 200) for place in range(1, 200)]
    assert values == sorted(values)
    assert given_.lowest <= values[0]
    assert values[-1] <= given_.highest


def test_between_two_points_the_distribution_is_log_normal() -> None:
    score = NormalDist().inv_cdf
    sigma = (log(20480) - log(8192)) / (score(0.95) - score(0.5))
    for place in (0.05, 0.3, 0.7, 0.9):
        assert REPORTS.at(place) == round(exp(log(8192) + sigma * score(place)))


def test_without_a_max_nothing_is_longer_than_the_line_at_one_in_ten_thousand() -> None:
    assert REPORTS.highest == REPORTS.at(0.9999) == REPORTS.at(1 - 1e-9)
    assert Quantiles(p50=10, p95=20, p99=30, max=31).at(0.9999) == 31
    assert REPORTS.lowest == REPORTS.at(0.0001)


def test_one_number_is_that_number_everywhere() -> None:
    assert {constant(512).at(place) for place in (1e-9, 0.5, 1 - 1e-9)} == {512}
    assert LengthTable(constant(512)).mean == 512


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"p50": 10, "p95": 5, "p99": 20}, "p95 is 5, less than p50, 10"),
        ({"p50": 10, "p95": 15, "p99": 20, "max": 19}, "max is 19, less than p99, 20"),
        ({"p50": 0, "p95": 15, "p99": 20}, "p50 is 0, not from 1"),
        ({"p50": 1, "p95": 2, "p99": 2**41}, "p99 is"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Quantiles(**values)


@given(quantiles())
def test_the_table_is_the_rule_at_every_cell(given_: Quantiles) -> None:
    table = LengthTable(given_)
    cells = np.array([1, 2, 700, 30_000, CELLS // 2, 60_000, CELLS - 1], dtype=np.uint32)
    drawn = table.at(cells << np.uint32(16)).tolist()
    exact = [given_.at(int(cell) / CELLS) for cell in cells]
    assert all(abs(one - other) <= 1 + other // 10**9 for one, other in zip(drawn, exact, strict=True))


def test_strata_meet_the_quantiles_and_independent_draws_approach_them() -> None:
    """Sampling error: the rank of a sampled quantile q of n draws has a standard deviation of sqrt(n q (1 - q))."""
    table, count = LengthTable(REPORTS), 4096
    rng = np.random.Generator(np.random.PCG64(1))
    exact = np.sort(table.at(random_words(rng, count, stratified=True)))
    drawn = np.sort(table.at(random_words(rng, count, stratified=False)))
    for place, value in REPORTS.points:
        rank = round(place * count)
        assert exact[rank - 2] <= value <= exact[rank + 1]
        slack = round(4 * (count * place * (1 - place)) ** 0.5)
        assert drawn[rank - slack] <= value <= drawn[min(rank + slack, count - 1)]
