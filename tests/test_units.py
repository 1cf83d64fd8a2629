"""Bytes and what people write for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.formats.dtypes import DType
from vramledger.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    ceil_div,
    format_bytes,
    format_gib,
    parse_bytes,
    round_up,
)


@pytest.mark.parametrize(
    ("dtype", "size", "shown"),
    [
        (DType.F32, 32_000_000_000, "29.80 GiB"),
        (DType.BF16, 16_000_000_000, "14.90 GiB"),
        (DType.F16, 16_000_000_000, "14.90 GiB"),
        (DType.I8, 8_000_000_000, "7.45 GiB"),
        (DType.F8_E4M3, 8_000_000_000, "7.45 GiB"),
        (DType.I4, 4_000_000_000, "3.73 GiB"),
    ],
)
def test_eight_billion_parameters(dtype: DType, size: int, shown: str) -> None:
    assert dtype.bytes_for(8_000_000_000) == size
    assert format_gib(size) == shown


def test_sixteen_gb_is_not_sixteen_gib() -> None:
    assert parse_bytes("16.0 GB") == 16_000_000_000
    assert parse_bytes("16GiB") == 17_179_869_184
    assert parse_bytes("80 GB") < parse_bytes("79.19GiB") < parse_bytes("80 GiB")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1073741824", GIB),
        ("12B", 12),
        ("1KiB", KIB),
        (" 1.5 MiB ", 3 * MIB // 2),
        ("2tib", 2 * TIB),
        ("1KB", 1000),
        ("1.5MB", 1_500_000),
        ("3TB", 3 * 10**12),
        ("0.29 GB", 290_000_000),
        ("79.19GiB", 85_029_615_042),
    ],
)
def test_a_size_as_people_write_it(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", " ", "GiB", "-1", "1e9", "1.GiB", ".5GiB", "1,5GiB", "16G", "16 gibi", "inf", "nan", "٣GiB", "1 2"],
)
def test_anything_else_is_refused_with_what_was_written(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size") as refused:
        parse_bytes(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + ".5GiB", "9" * 5000, "1." + "0" * 400 + "GiB"])
def test_a_number_of_hundreds_of_digits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


def test_a_size_is_shown_in_its_largest_whole_unit() -> None:
    assert format_bytes(393216) == "393216 B"
    assert format_bytes(MIB - 1) == f"{MIB - 1} B"
    assert format_bytes(MIB) == "1.0 MiB"
    assert format_bytes(GIB) == "1.00 GiB"
    assert format_bytes(-3 * GIB // 2) == "-1.50 GiB"
    assert format_gib(16_060_522_496, 4) == "14.9575 GiB"


@given(st.integers(0, 10**24))
def test_a_whole_number_survives_any_unit(size: int) -> None:
    assert parse_bytes(str(size)) == size
    assert parse_bytes(f"{size} GiB") == size * GIB
    assert parse_bytes(f"{size} GB") == size * 10**9


@given(st.integers(-(10**15), 10**15), st.integers(1, 10**9))
def test_ceiling_division_is_the_smallest_number_that_covers(numerator: int, denominator: int) -> None:
    found = ceil_div(numerator, denominator)
    assert (found - 1) * denominator < numerator <= found * denominator


@given(st.integers(0, 10**15), st.integers(1, 10**9))
def test_rounding_up_reaches_the_next_multiple(value: int, multiple: int) -> None:
    found = round_up(value, multiple)
    assert found % multiple == 0
    assert value <= found < value + multiple


@given(st.sampled_from(DType), st.integers(0, 10**12))
def test_elements_take_whole_bytes_and_no_more(dtype: DType, count: int) -> None:
    size = dtype.bytes_for(count)
    assert 8 * size >= count * dtype.bits
    assert 8 * size < count * dtype.bits + 8
