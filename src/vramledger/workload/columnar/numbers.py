"""Columns of cells as whole numbers: what is none is found by row, never guessed."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vramledger.workload.columns import Ints

Mask = npt.NDArray[np.bool_]
MISSING = frozenset({"", "null", "none", "nan", "na", "n/a", "nil", "-", "<na>"})


class Cut(NamedTuple):
    """Values where `known`; elsewhere the cell is empty, or listed in `bad` with why."""

    values: Ints
    known: Mask
    bad: list[tuple[int, str, object]]


def whole_numbers(cells: pa.Array) -> Cut:
    """Cells of any Arrow type as whole numbers: "17" and 17.0 are some, 17.5, NaN and words are not."""
    cells = _plain(cells)
    kind = cells.type
    if pa.types.is_null(kind):
        return _nothing(len(cells))
    if pa.types.is_integer(kind):
        return _integers(cells)
    if pa.types.is_floating(kind):
        return _floats(cells)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return _integers(cells.cast(pa.int64()))
        except pa.ArrowInvalid:
            return _one_by_one(cells, 0)
    return _one_by_one(cells, 0)


def scaled_numbers(cells: pa.Array, scale: int) -> Cut:
    """Numbers with a fraction, times `scale` (a power of ten up to 10**9), rounded to whole numbers.

    Decimal text keeps every digit; binary floats are as exact as they are.
    """
    cells = _plain(cells)
    kind = cells.type
    if pa.types.is_null(kind):
        return _nothing(len(cells))
    if pa.types.is_integer(kind):
        return _times(_integers(cells), scale)
    if pa.types.is_floating(kind):
        return _scaled_floats(cells, scale)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        digits = len(str(scale)) - 1
        try:
            return _decimals(cells.cast(pa.decimal128(38, digits)))
        except pa.ArrowInvalid:
            return _one_by_one(cells, scale)
    return _one_by_one(cells, scale)


def moments(cells: pa.Array) -> Cut:
    """Calendar times (Arrow's, or text after ISO 8601, with a zone or not) as nanoseconds since 1970."""
    cells = _plain(cells)
    for target in (pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")):
        try:
            return _integers(cells.cast(target).cast(pa.int64()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    values = np.zeros(len(cells), dtype=np.int64)
    known = np.zeros(len(cells), dtype=np.bool_)
    bad: list[tuple[int, str, object]] = []
    for place, cell in enumerate(cells.to_pylist()):
        if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
            continue
        for target in (pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")):
            try:
                values[place] = pa.scalar(cell).cast(target).cast(pa.int64()).as_py()
                known[place] = True
                break
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
        else:
            bad.append((place, "is no time", cell))
    return Cut(values, known, bad)


def looks_like_moments(cells: pa.Array) -> bool:
    """Whether the first cell that is not empty is a calendar time."""
    cells = first_cell(cells)
    if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
        return True
    if not len(cells) or not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return False
    first: str = cells[0].as_py()
    return _as_number(first) is None and len(first) >= 10 and first[:4].isdecimal() and first[4] == "-"


def first_cell(cells: pa.Array) -> pa.Array:
    """The first cell that is not empty, or none."""
    cells = _plain(cells)
    for start in range(0, len(cells), 64):
        part = cells.slice(start, 64).drop_null()
        if len(part):
            return part.slice(0, 1)
    return cells.slice(0, 0)


def texts(cells: pa.Array) -> tuple[list[str], Ints]:
    """(distinct texts, which one each cell has); empty cells are ""."""
    encoded = _plain(cells).cast(pa.string()).fill_null("").dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def from_python(values: list[Any]) -> pa.Array:
    """Values of JSON as a column; of mixed kinds as text, so that each is judged alone."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else _text(value) for value in values], type=pa.string())


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)[:200]


def _plain(cells: Any) -> pa.Array:
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_string_view(cells.type):
        cells = cells.cast(pa.string())
    return cells


def _nothing(count: int) -> Cut:
    return Cut(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_), [])


def _known(cells: pa.Array) -> Mask:
    if not cells.null_count:
        return np.ones(len(cells), dtype=np.bool_)
    return np.asarray(cells.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _integers(cells: pa.Array) -> Cut:
    known = _known(cells)
    try:
        whole = cells.cast(pa.int64())
    except pa.ArrowInvalid:
        return _one_by_one(cells, 0)
    if cells.null_count:
        whole = pc.fill_null(whole, 0)
    return Cut(whole.to_numpy(zero_copy_only=False), known, [])


def _floats(cells: pa.Array) -> Cut:
    known = _known(cells)
    values = np.asarray(pc.fill_null(cells, 0).to_numpy(zero_copy_only=False), dtype=np.float64)
    good = np.isfinite(values) & (np.abs(values) < 2**53)
    whole = np.where(good, values, 0.0)
    good &= whole == np.floor(whole)
    bad = _bad_floats(values, ~good & known)
    return Cut(np.where(good, whole, 0.0).astype(np.int64), known & good, bad)


def _scaled_floats(cells: pa.Array, scale: int) -> Cut:
    known = _known(cells)
    values = np.asarray(pc.fill_null(cells, 0).to_numpy(zero_copy_only=False), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        good = np.isfinite(values) & (np.abs(values) < 2.0**62 / scale)
    bad = _bad_floats(values, ~good & known)
    return Cut(scaled_floats(np.where(good, values, 0.0), scale), known & good, bad)


def scaled_floats(values: npt.NDArray[np.float64], scale: int) -> Ints:
    """Floats times `scale`, rounded once: whole and fraction apart, so that dates of today keep what a float holds."""
    whole = np.floor(values)
    return whole.astype(np.int64) * scale + np.rint((values - whole) * scale).astype(np.int64)


def _decimals(cells: pa.Array) -> Cut:
    """Unscaled values of 128-bit decimals that fit 64 bits."""
    words = np.frombuffer(cells.buffers()[1], dtype=np.int64)[2 * cells.offset :][: 2 * len(cells)]
    known = _known(cells)
    low, high = words[0::2], words[1::2]
    good = (high == low >> 63) & (np.abs(low) < 2**62)
    bad: list[tuple[int, str, object]] = [
        (place, "is too large", str(cells[place])) for place in np.flatnonzero(~good & known).tolist()
    ]
    return Cut(np.where(good & known, low, 0), known & good, bad)


def _times(cut: Cut, scale: int) -> Cut:
    most = 2**62 // max(scale, 1)
    good = np.abs(cut.values) <= most
    bad: list[tuple[int, str, object]] = [
        (place, "is too large", int(cut.values[place]))
        for place in np.flatnonzero(~good & cut.known).tolist()
    ]
    return Cut(np.where(good, cut.values, 0) * scale, cut.known & good, [*cut.bad, *bad])


def _bad_floats(values: npt.NDArray[np.float64], mask: Mask) -> list[tuple[int, str, object]]:
    places = np.flatnonzero(mask).tolist()
    return [(place, _why(float(values[place])), float(values[place])) for place in places]


def _why(value: float) -> str:
    if math.isnan(value):
        return "is NaN"
    return "is no whole number" if abs(value) < 2**53 and value != math.floor(value) else "is too large"


def _as_number(text: str) -> Decimal | None:
    try:
        number = Decimal(text.strip()) if len(text) <= 60 else None
    except InvalidOperation:
        return None
    return number


def _one_by_one(cells: pa.Array, scale: int) -> Cut:
    """Each cell alone; `scale` 0 asks for whole numbers."""
    values = np.zeros(len(cells), dtype=np.int64)
    known = np.zeros(len(cells), dtype=np.bool_)
    bad: list[tuple[int, str, object]] = []
    for place, cell in enumerate(cells.to_pylist()):
        text = cell if isinstance(cell, str) else "" if cell is None else str(cell)[:100]
        if text.strip().lower() in MISSING and (not isinstance(cell, float)):
            if text.strip().lower() == "nan":
                bad.append((place, "is NaN", cell))
            continue
        number = None if isinstance(cell, bool) else _as_number(text)
        if number is None:
            bad.append((place, "is no number", cell))
        elif not number.is_finite():
            bad.append((place, "is NaN" if number.is_nan() else "is too large", cell))
        elif number.adjusted() > 18 or abs(number) * max(scale, 1) >= 2**62:
            bad.append((place, "is too large", cell))
        elif not scale and number != number.to_integral_value():
            bad.append((place, "is no whole number", cell))
        else:
            values[place] = round(number * max(scale, 1))
            known[place] = True
    return Cut(values, known, bad)
