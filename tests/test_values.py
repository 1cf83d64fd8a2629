"""The fast decorator gives what the standard one gives."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import pytest

from vramledger import values


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    """With text."""

    a: int
    b: tuple[int, ...] = ()
    c: list[int] = field(default_factory=list, compare=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """With text."""

    a: int
    b: tuple[int, ...] = ()
    c: list[int] = field(default_factory=list, compare=False)


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Wider(Quick):
    d: float


@values.dataclass(frozen=True, slots=True, order=True)
class Point:
    x: int
    y: int = 0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is below 0")


@values.dataclass(slots=True)
class Changing:
    x: int


def test_fields_defaults_and_text_are_the_standard_ones() -> None:
    assert [item.name for item in fields(Quick)] == [item.name for item in fields(Standard)]
    assert repr(Quick(a=1)) == repr(Standard(a=1)).replace("Standard", "Quick")
    assert Quick.__doc__ == "With text."
    assert Quick.__slots__ == Standard.__slots__
    assert Quick.__match_args__ == Standard.__match_args__
    assert Quick(a=1).c is not Quick(a=1).c
    assert Wider.__doc__ is None


@pytest.mark.parametrize("wrong", [{}, {"a": 1, "z": 2}])
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Quick(**wrong)
    with pytest.raises(TypeError):
        Quick(1)  # type: ignore[call-arg]


def test_equality_and_hash_follow_compared_fields() -> None:
    assert Quick(a=2, c=[1]) == Quick(a=2, c=[3])
    assert hash(Quick(a=2, c=[1])) == hash(Quick(a=2, c=[3]))
    assert Quick(a=2) != Quick(a=3)
    assert Quick(a=2) != Wider(a=2, d=0.5)
    assert Wider(a=2, d=0.5) == Wider(a=2, d=0.5)


def test_frozen_values_cannot_change() -> None:
    value = Quick(a=5)
    with pytest.raises(FrozenInstanceError):
        value.a = 7  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del value.a
    assert not hasattr(value, "__dict__")


def test_replace_copy_and_pickle() -> None:
    value = Wider(a=5, b=(7,), d=0.5)
    assert replace(value, a=11) == Wider(a=11, b=(7,), d=0.5)
    assert copy.copy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_order_checks_and_positions() -> None:
    assert Point(2, 3) < Point(2, 5) <= Point(2, 5)
    assert max(Point(3), Point(2, 9)) == Point(3, 0)
    with pytest.raises(ValueError, match="below 0"):
        Point(-1)
    match Point(2, 3):
        case Point(x, y):
            assert (x, y) == (2, 3)


def test_values_that_change_have_no_hash() -> None:
    value = Changing(2)
    value.x = 3
    assert value == Changing(3)
    with pytest.raises(TypeError):
        hash(value)
