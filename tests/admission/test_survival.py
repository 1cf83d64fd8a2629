"""Lengths learned from those that ended and those that were still there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.admission.candidate import Candidate
from vramledger.admission.forecast import Forecast, LengthBook
from vramledger.admission.survival import Survival, bin_of, last_of, least_observations


@given(st.integers(0, 2**40))
def test_a_bin_holds_its_lengths_and_is_fine(value: int) -> None:
    number = bin_of(value)
    first = last_of(number - 1) + 1 if number else 0
    assert first <= value <= last_of(number)
    assert last_of(number) - first <= max(0, value) / 16


@given(
    st.lists(st.integers(1, 31), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.5, 0.9]),
    st.integers(0, 30),
)
def test_without_censoring_it_is_the_share_counted(
    lengths: list[int], quantile: float, given_at: int
) -> None:
    survival = Survival()
    for length in lengths:
        survival.reach(length)
        survival.end(length)
    longer = [length for length in lengths if length > given_at]
    for value in range(given_at, 32):
        beyond = sum(length > value for length in longer)
        expected = beyond / len(longer) if longer else 1.0
        assert survival.share_beyond(value, given=given_at) == pytest.approx(expected)
    ranked = sorted(longer)
    counted = next((x for x in ranked if sum(y <= x for y in ranked) >= quantile * len(ranked) - 1e-9), None)
    assert survival.at(quantile, given=given_at) == counted


def test_those_still_running_are_not_taken_for_short() -> None:
    # Ten ended at 5 tokens, ten were seen at 20 and go on: half are longer than 5, and nobody knows how long.
    survival = Survival()
    for _ in range(10):
        survival.reach(5)
        survival.end(5)
        survival.reach(20)
    assert survival.share_beyond(5) == 0.5
    assert survival.at(0.4) == 5
    assert survival.at(0.6) is None
    # Kaplan and Meier's example by hand: of 10 that go on, 5 end at 30: 1/2 * 1/2.
    for _ in range(5):
        survival.reach(30, 20)
        survival.end(30)
    for _ in range(5):
        survival.reach(31, 20)
    assert survival.share_beyond(30) == 0.25
    assert survival.share_beyond(30, given=20) == 0.5


def test_too_few_are_not_relied_on() -> None:
    # 0.95 ** 58 = 0.0510, 0.95 ** 59 = 0.0485.
    assert least_observations(0.95, 0.95) == 59
    survival = Survival()
    for number in range(58):
        survival.reach(10)
        survival.end(10)
        assert survival.safe_at(0.95, 0.95) is None, number
    survival.reach(12)
    survival.end(12)
    assert survival.safe_at(0.95, 0.95) in (10, 12)
    assert survival.safe_at(0.95, 0.95, given=10) is None


def test_what_is_old_fades() -> None:
    survival = Survival(window=50)
    for length in [5] * 100 + [25] * 400:
        survival.reach(length)
        survival.end(length)
    assert survival.ends <= 101
    assert survival.share_beyond(5) > 0.97


def candidate(identity: int, **fields: object) -> Candidate:
    values: dict[str, object] = {"identity": identity, "prompt_tokens": 100, "max_output_tokens": 1000}
    return Candidate(**(values | fields))  # type: ignore[arg-type]


def test_a_forecast_starts_at_the_bound_and_says_what_it_rests_on() -> None:
    book = LengthBook()
    asked = candidate(0)
    assert book.at(asked, 0.9, 0.9) == Forecast(1000, 0)
    for identity in range(1, 41):
        book.start(candidate(identity))
        book.end(identity, 20 + identity % 3, is_finished=True)
    forecast = book.at(asked, 0.9, 0.9)
    assert forecast == Forecast(22, 40)
    # What has generated more than any before it is at its bound again; the client's bound is never exceeded.
    assert book.at(asked, 0.9, 0.9, generated_tokens=25) == Forecast(1000, 0)
    assert book.at(candidate(0, max_output_tokens=15), 0.9, 0.9) == Forecast(15, 40)


def test_who_was_cut_at_his_bound_or_cancelled_did_not_end_of_himself() -> None:
    book = LengthBook()
    for identity in range(60):
        book.start(candidate(identity, max_output_tokens=10))
        book.end(identity, 10, is_finished=True)
        book.start(candidate(100 + identity))
        book.end(100 + identity, 5, is_finished=False)
    assert book.at(candidate(999), 0.9, 0.9) == Forecast(1000, 0)


def test_a_class_of_its_own_speaks_before_the_rest() -> None:
    book = LengthBook()
    for identity in range(100):
        tenant = identity % 2
        book.start(candidate(identity, tenant=tenant, cohort=f"c{tenant}"))
        book.end(identity, 10 if tenant else 30, is_finished=True)
    assert book.at(candidate(999, tenant=1, cohort="c1"), 0.9, 0.9).tokens == 10
    assert book.at(candidate(999, tenant=0, cohort="c0"), 0.9, 0.9).tokens == 30
    # A cohort that nobody knows is told what all were like.
    assert book.at(candidate(999, cohort="new"), 0.9, 0.9) == Forecast(30, 100)
