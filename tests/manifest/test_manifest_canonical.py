"""The canonical form of RFC 8785, and the digest over it."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.manifest.canonical import LARGEST_WHOLE, canonical, content_digest, number_text

# Appendix B of RFC 8785: the bits of a double, and how ECMAScript writes it.
NUMBERS = (
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST_WHOLE, LARGEST_WHOLE)
    | st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda value: not (LARGEST_WHOLE < abs(value) < 1e21)
    )
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_of_the_rfc(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert number_text(value) == text


def test_the_object_of_the_rfc() -> None:
    # Section 3.2.2 and 3.2.3 of RFC 8785.
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert canonical(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_in_the_order_of_their_utf16_code_units() -> None:
    # Section 3.2.3: a key outside the basic plane sorts by its surrogates, before U+FB33.
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    order = list(json.loads(canonical(dict.fromkeys(names, 0))))
    assert order == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@given(VALUES)
def test_what_is_read_back_has_the_same_form(value: Any) -> None:
    text = canonical(value)
    assert canonical(json.loads(text)) == text


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=6), st.randoms())
def test_the_order_of_keys_and_blanks_are_nothing(value: dict[str, Any], random: Any) -> None:
    names = list(value)
    random.shuffle(names)
    shuffled = {name: value[name] for name in names}
    assert content_digest(json.loads(json.dumps(shuffled, indent=3))) == content_digest(value)


@given(st.integers(-LARGEST_WHOLE, LARGEST_WHOLE))
def test_a_whole_number_is_one_however_it_is_written(value: int) -> None:
    assert canonical(float(value)) == canonical(value) == canonical(json.loads(f"{value}.0"))


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        LARGEST_WHOLE + 1,
        float(2**53),
        -(10**400),
        "\ud800",
        {"\udfff": 1},
        {1: 2},
        b"x",
        {1, 2},
    ],
)
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"form|JSON|key"):
        canonical(value)


def test_the_digest_leaves_itself_out() -> None:
    assert content_digest({"a": 1, "digest": "x"}) == content_digest({"digest": "y", "a": 1.0})
    assert content_digest({"a": 1}) != content_digest({"a": 2})
    assert content_digest({"a": {"digest": 1}}) != content_digest({"a": {"digest": 2}})
