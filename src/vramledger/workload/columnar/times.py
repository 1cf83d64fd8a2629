"""The column that says when requests came: its unit, and whether it counts from the trace's start or is a calendar's."""

from __future__ import annotations

from typing import Any

import numpy as np

from vramledger.errors import InputError
from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.numbers import Cut, first_cell, looks_like_moments, moments, scaled_numbers
from vramledger.workload.columns import Ints
from vramledger.workload.field_names import unit_in
from vramledger.workload.reading_options import UNIT_NS

YEAR_2000_NS = 946_684_800 * 10**9
YEAR_2100_NS = 4_102_444_800 * 10**9
SLOWEST_PER_S, FASTEST_PER_S = 0.02, 2000
"""Rates of requests that need no explanation: from one in 50 seconds to what a large service has."""
LONGEST_GAP_NS = 3 * 365 * 86_400 * 10**9


class ArrivalTimes:
    """Turns one trace's arrival column into nanoseconds, batch by batch.

    The unit is the one that was asked for, else `stated` by the format or the column's name, else that in which the
    first number is a date between 2000 and 2100, else seconds; what was taken without being said is noted.
    `is_absolute` tells after the first batch that times are a calendar's.
    """

    def __init__(self, column: str, found: Findings, *, stated: str | None = None) -> None:
        self.column = column
        self.is_absolute = False
        self._found = found
        self._unit = found.options.time_unit or stated or unit_in(column)
        self._calendar: bool | None = None

    def cut(self, cells: Any) -> Cut:
        """One batch."""
        if self._calendar is None:
            self._calendar = looks_like_moments(cells)
            self.is_absolute = self._calendar
            if not self._calendar:
                self._choose(cells)
        return moments(cells) if self._calendar else scaled_numbers(cells, UNIT_NS[self._unit or "s"])

    def _choose(self, cells: Any) -> None:
        seconds = scaled_numbers(first_cell(cells), 1)
        first = int(seconds.values[0]) if seconds.known.any() else 0
        if self._unit is None:
            self._unit = next((unit for unit, ns in UNIT_NS.items() if _is_date(first * ns)), None)
            self._found.note(
                f"times ({self.column}) are taken as "
                + (
                    "seconds; the column does not say it, time_unit (--time-unit) decides"
                    if self._unit is None
                    else f"dates in {self._unit}: in that unit the first is between 2000 and 2100"
                )
            )
        self.is_absolute = _is_date(first * UNIT_NS[self._unit or "s"])


def _is_date(ns: int) -> bool:
    return YEAR_2000_NS <= ns < YEAR_2100_NS


def check_gaps(arrivals_ns: Ints, rows: Ints, found: Findings) -> None:
    """Raises InputError where two neighbours in time are years apart: units that change within a file."""
    if len(arrivals_ns) < 2:
        return
    gaps = np.diff(arrivals_ns)
    place = int(np.argmax(gaps))
    if int(gaps[place]) > LONGEST_GAP_NS:
        years = int(gaps[place]) / (365 * 86_400 * 10**9)
        raise InputError(
            f"{found.source_name}: {years:,.0f} years lie between {found.unit_of_rows} {int(rows[place]):,} and "
            f"{int(rows[place + 1]):,}; are times of two units mixed?",
            file=found.source_name,
            row=int(rows[place + 1]),
        )


def jump_doubt(arrivals_ns: Ints, rows: Ints, unit_of_rows: str) -> str | None:
    """A note on the first place where times since a trace's start become a thousand or a million times as large."""
    if len(arrivals_ns) < 2:
        return None
    before = np.maximum(arrivals_ns[:-1], 1).astype(np.float64)
    growth = arrivals_ns[1:] / before
    for factor in (1000, 10**6):
        # So near to the factor: the next request comes soon after, in either unit.
        near = (np.abs(growth / factor - 1) < 1 / 30) & (before >= 10**9)
        if near.any():
            place = int(np.argmax(near))
            return (
                f"times grow {factor:,}-fold from {unit_of_rows} {int(rows[place]):,} to {int(rows[place + 1]):,}: "
                "are two units mixed?"
            )
    return None


def unit_doubt(count: int, span_ns: int) -> str | None:
    """A note where a rate is far from what servers see and another unit would make it usual."""
    if count < 20 or span_ns <= 0:
        return None
    rate = count * 10**9 / span_ns
    for factor, other in ((1000, "a thousandth"), (10**6, "a millionth"), (10**9, "a thousand-millionth")):
        if rate < SLOWEST_PER_S <= rate * factor <= FASTEST_PER_S:
            return (
                f"{count:,} requests over {span_ns / 86_400e9:,.1f} days are {rate:.2g} a second; with times of "
                f"{other} of the unit they would be {rate * factor:.2g}: is time_unit (--time-unit) right?"
            )
    for factor, other in ((1000, "thousand"), (10**6, "million"), (10**9, "thousand million")):
        if rate > FASTEST_PER_S and SLOWEST_PER_S <= rate / factor <= FASTEST_PER_S:
            return (
                f"{count:,} requests in {span_ns / 1e9:,.3g} s are {rate:,.3g} a second; with times {other} times as "
                f"long they would be {rate / factor:.2g}: is time_unit (--time-unit) right?"
            )
    return None
