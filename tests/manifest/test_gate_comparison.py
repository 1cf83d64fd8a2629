"""Estimates against limits: what their intervals decide, and what they leave open."""

from __future__ import annotations

import random
from math import exp
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import FlagError
from vramledger.manifest.expression import parse_requirement, parse_threshold
from vramledger.manifest.gate_comparison import judge_change, judge_requirement
from vramledger.manifest.quantity import Bounds, Group, Quantity, Unit
from vramledger.manifest.thresholds import Outcome

RATE = Quantity(name="rate", group=Group.CAPACITY, unit=Unit.RATE, value=4.0, about="")
SIZE = Quantity(name="size", group=Group.POOL, unit=Unit.BYTES, value=4, about="")
WAIT = Quantity(name="wait_s", group=Group.CAPACITY, unit=Unit.SECONDS, value=0.2, about="")
WORD = Quantity(name="word", group=Group.INPUTS, unit=Unit.TEXT, value="fp8", about="")
KNOWN = {item.name: item for item in (RATE, SIZE, WAIT, WORD)}
HELD, TRIPPED, UNTOLD = Outcome.HELD, Outcome.TRIPPED, Outcome.UNTOLD
POSITIVE = st.floats(0.01, 1e4)


def ends(low: float, high: float, confidence: float = 0.95, *, at_least: bool = False) -> Bounds:
    return Bounds(low=low, high=high, confidence=confidence, is_at_least=at_least)


def requirement(text: str, value: float | str | None, bounds: Bounds | None = None) -> Outcome:
    wanted = parse_requirement(text, KNOWN)
    found = Quantity(
        name=wanted.name, group=Group.CAPACITY, unit=wanted.unit, value=value, about="", bounds=bounds
    )
    return judge_requirement(wanted, found, value, 0.95).outcome


def change(
    text: str, old: float, new: float, was: Bounds | None, now: Bounds | None, confidence: float = 0.95
) -> Outcome:
    return judge_change(
        parse_threshold(text, KNOWN), old, new, bounds=(was, now), confidence=confidence
    ).outcome


@pytest.mark.parametrize(
    ("text", "value", "bounds", "outcome"),
    [
        ("rate >= 3", 4.0, ends(3.6, 4.4), HELD),
        ("rate >= 3.6", 4.0, ends(3.6, 4.4), HELD),
        ("rate > 3.6", 4.0, ends(3.6, 4.4), UNTOLD),
        ("rate >= 4", 4.0, ends(3.6, 4.4), UNTOLD),
        ("rate >= 5", 4.0, ends(3.6, 4.4), TRIPPED),
        ("rate <= 3", 4.0, ends(3.6, 4.4), TRIPPED),
        ("rate >= 5", 4.0, ends(3.6, 4.0, at_least=True), UNTOLD),
        ("rate >= 3", 4.0, ends(3.6, 4.0, at_least=True), HELD),
        ("rate >= 3", 4.0, None, HELD),
        ("size >= 1KiB", 1024, None, HELD),
        ("size >= 1KiB", 1023, None, TRIPPED),
        ("wait_s <= 250ms", 0.2, None, HELD),
        ("wait_s <= 0.1 s", 0.2, None, TRIPPED),
        ("word == fp8", "fp8", None, HELD),
        ("word != fp8", "fp8", None, TRIPPED),
        ("word == fp8", None, None, UNTOLD),
        ("rate >= 3", None, None, UNTOLD),
        ("settings.none == not set", "not set", None, HELD),
    ],
)
def test_requirements(text: str, value: float | str | None, bounds: Bounds | None, outcome: Outcome) -> None:
    assert requirement(text, value, bounds) is outcome


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate >= 5%", "a per cent is a change"),
        ("word >= 5", "can only be asked for == or !="),
        ("word ==", "expected the text"),
        ("rat >= 5", "did you mean rate"),
        ("rate about 5", "column 6: expected <"),
        ("size >= 5", "is in bytes"),
        ("x" * 300, "300 characters"),
    ],
)
def test_requirements_that_cannot_be_read_name_the_place(text: str, said: str) -> None:
    with pytest.raises(FlagError, match=said) as caught:
        parse_requirement(text, KNOWN, asked="policy.toml: keep")
    assert caught.value.message.startswith("policy.toml: keep")


@pytest.mark.parametrize(
    ("new", "now", "outcome"),
    [
        (4.0, ends(3.6, 4.4), HELD),  # S = 4 - 0.8 * 4 = 0.8, below it 0.4 and 0.32: 0.288 to 1.312
        (3.6, ends(3.2, 4.0), UNTOLD),  # 0.4 - 0.512 < 0
        (2.8, ends(2.4, 3.2), UNTOLD),  # -0.4 + 0.512 > 0
        (2.6, ends(2.2, 3.0), TRIPPED),  # -0.6 + 0.512 < 0
        (2.6, ends(2.2, 2.6, at_least=True), UNTOLD),
        (4.0, None, HELD),
    ],
)
def test_a_loss_of_more_than_a_fifth_by_hand(new: float, now: Bounds | None, outcome: Outcome) -> None:
    assert change("rate < -20%", 4.0, new, ends(3.6, 4.4), now) is outcome


def test_an_amount_and_a_growth_are_judged_alike() -> None:
    assert change("rate < -1", 4.0, 2.0, ends(3.9, 4.1), ends(1.9, 2.1)) is TRIPPED
    assert change("rate < -1", 4.0, 3.05, ends(3.9, 4.1), ends(2.9, 3.2)) is UNTOLD
    assert change("rate > +20%", 4.0, 6.0, ends(3.9, 4.1), ends(5.9, 6.1)) is TRIPPED
    assert change("rate > +20%", 4.0, 4.0, ends(3.9, 4.1), ends(3.9, 4.1)) is HELD


def test_what_old_was_shown_to_serve_is_what_new_must() -> None:
    shown = ends(4.0, 4.0, at_least=True)
    assert change("rate < -5%", 4.0, 4.0, shown, shown) is HELD
    assert change("rate < -5%", 4.0, 3.0, shown, ends(2.9, 3.1)) is TRIPPED


def test_from_nothing_and_to_nothing() -> None:
    nothing = ends(0.0, 0.0)
    assert change("rate < -5%", 0.0, 4.0, nothing, ends(3.6, 4.4)) is HELD
    assert change("rate < -5%", 4.0, 0.0, ends(3.6, 4.4), nothing) is TRIPPED
    assert change("rate < -5%", 0.0, 0.0, nothing, nothing) is HELD


def test_more_confidence_is_asked_for_with_wider_ends() -> None:
    pair = (ends(3.6, 4.4), ends(2.3, 2.9))
    assert change("rate < -20%", 4.0, 2.6, *pair) is TRIPPED
    assert change("rate < -20%", 4.0, 2.6, *pair, confidence=0.999) is UNTOLD
    wider = ends(3.6, 4.4).at(0.99, 4.0)
    z = NormalDist().inv_cdf
    assert wider.high - 4.0 == pytest.approx(0.4 * z(0.995) / z(0.975))
    assert ends(0.1, 4.4).at(0.999, 4.0).low == 0.0


@given(old=POSITIVE, new=POSITIVE, was=st.floats(0, 0.9), now=st.floats(0, 0.9), percent=st.integers(1, 99))
def test_an_interval_never_turns_a_verdict_and_a_point_always_has_one(
    old: float, new: float, was: float, now: float, percent: int
) -> None:
    text = f"rate < -{percent}%"
    by_points = change(text, old, new, None, None)
    assert by_points is not UNTOLD
    found = change(
        text, old, new, ends(old * (1 - was), old * (1 + was)), ends(new * (1 - now), new * (1 + now))
    )
    # Where the middle lies within a rounding of the limit either is right.
    if abs(new - old * (1 - percent / 100)) > 1e-9 * old:
        assert found in (by_points, UNTOLD)


@pytest.mark.parametrize(("loss", "outcome"), [(0.2, TRIPPED), (0.2, HELD)])
def test_at_the_limit_itself_either_verdict_is_rare(loss: float, outcome: Outcome) -> None:
    """A true loss of exactly the limit is called more or less than it by chance alone: each in at most half of what the confidence
    leaves, as counted over estimates with a normal error and a skewed one."""
    draws = random.Random(7)
    for skewed in (False, True):
        count = sum(_drawn(draws, loss, skewed=skewed) is outcome for _ in range(4000))
        assert count / 4000 < 0.025 + 3 * (0.025 * 0.975 / 4000) ** 0.5


@pytest.mark.parametrize(("loss", "outcome", "share"), [(0.5, TRIPPED, 0.95), (-0.2, HELD, 0.9)])
def test_far_from_the_limit_the_verdict_is_the_usual_one(loss: float, outcome: Outcome, share: float) -> None:
    draws = random.Random(8)
    found = [_drawn(draws, loss, limit=0.2, skewed=skewed) for skewed in (False, True) for _ in range(500)]
    assert found.count(outcome) / len(found) > share


def _drawn(draws: random.Random, loss: float, *, skewed: bool, limit: float | None = None) -> Outcome:
    old, old_ends = _estimate(draws, 4.0, 0.08, skewed=skewed)
    new, new_ends = _estimate(draws, 4.0 * (1 - loss), 0.05, skewed=skewed)
    percent = 100 * (loss if limit is None else limit)
    return change(f"rate < -{percent:g}%", old, new, old_ends, new_ends)


def _estimate(draws: random.Random, truth: float, error: float, *, skewed: bool) -> tuple[float, Bounds]:
    z = NormalDist().inv_cdf(0.975)
    if skewed:  # log-normal, with its own exact interval
        found = truth * draws.lognormvariate(0.0, error)
        return found, ends(found * exp(-z * error), found * exp(z * error))
    found = draws.gauss(truth, truth * error)
    return found, ends(found - z * truth * error, found + z * truth * error)
