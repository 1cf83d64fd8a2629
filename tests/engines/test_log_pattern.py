"""Patterns read printed figures as what they may stand for."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.engines.log_pattern import first_match, line_pattern, printed_bytes, value_of
from vramledger.ledger import ByteRange
from vramledger.observation import Event
from vramledger.units import GIB, MIB

WEIGHTS = line_pattern(
    Event.WEIGHTS, "Model loading took", r"Model loading took (?P<weights_gib>NUM) GiB", source="vllm"
)


def test_a_line_becomes_bytes_as_wide_as_its_rounding() -> None:
    values = WEIGHTS.read("Model loading took 14.99 GiB memory and 3.1 seconds")
    assert values is not None
    weights = values["weights_bytes"]
    assert isinstance(weights, ByteRange)
    assert weights.low <= 16_095_000_000 <= weights.high
    assert weights.high - weights.low == 2 * (GIB // 200)


@given(st.integers(0, 2**43), st.integers(0, 6))
def test_what_was_printed_lies_in_the_range(size_bytes: int, decimals: int) -> None:
    text = f"{Decimal(size_bytes) / MIB:.{decimals}f}"
    found = printed_bytes(text, MIB)
    assert found is not None
    slack = 1  # the half unit and the quotient are floored
    assert found.low - slack <= size_bytes <= found.high + slack


@pytest.mark.parametrize("text", ["", "-", "1.2.3", "nan", "1e9", "9" * 50, "٣"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert printed_bytes(text, GIB) is None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("kv_tokens", "446,224", ("kv_tokens", 446224)),
        ("kv_usage_percent", "12.5", ("kv_usage_ratio", 0.125)),
        ("took_s", "3.5", ("took_s", 3.5)),
        ("engine_version", "0.11.0", ("engine_version", "0.11.0")),
        ("kv_tokens", "12.5", None),
    ],
)
def test_units_say_how_a_group_is_read(name: str, text: str, expected: object) -> None:
    assert value_of(name, text) == expected


def test_the_first_pattern_that_reads_a_line_wins_and_others_stay_silent() -> None:
    assert first_match((WEIGHTS,), "nothing of the kind") is None
    found = first_match((WEIGHTS,), "Model loading took 1.5 GiB")
    assert found is not None and found[0] is WEIGHTS
