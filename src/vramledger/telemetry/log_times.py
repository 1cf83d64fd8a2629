"""Times as printers of log lines write them, in Unix seconds.

A time without a zone is read as UTC. One without a year lies in the nearest past year, seen from a reference (when the
file was last written): a day is allowed for zones ahead of UTC.
"""

from __future__ import annotations

import calendar
from functools import lru_cache

DAY_S = 86_400
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
_FRACTION_DIGITS = 9


@lru_cache(maxsize=1024)
def day_s(year: int, month: int, day: int) -> int | None:
    """Unix time of a day's first second; None for a day that is not."""
    if not (1970 <= year <= 9999 and 1 <= month <= 12):
        return None
    if not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return calendar.timegm((year, month, day, 0, 0, 0))


def clock_s(clock: str) -> float | None:
    """Seconds since midnight of "16:12:50", "16:12:50.123456789" or "16:12:50,123"."""
    hour, minute, second = int(clock[:2]), int(clock[3:5]), int(clock[6:8])
    if hour > 23 or minute > 59 or second > 60:
        return None
    fraction = clock[9 : 9 + _FRACTION_DIGITS]
    return hour * 3600 + minute * 60 + second + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)


def zone_s(zone: str) -> int | None:
    """Seconds ahead of UTC of "Z", "UTC", "+00:00", "+0530", "-08"; None for what is no zone."""
    if zone in ("Z", "z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "")
    if zone[:1] not in ("+", "-") or not digits.isdecimal() or len(digits) not in (2, 4):
        return None
    ahead = int(digits[:2]) * 3600 + int(digits[2:] or "0") * 60
    return -ahead if zone[0] == "-" else ahead


def full_time(year: str, month: str, day: str, clock: str, zone: str = "") -> float | None:
    """Unix time of a date with its year; None for one that cannot be."""
    start = day_s(int(year), int(month), int(day))
    within = clock_s(clock)
    ahead = zone_s(zone) if zone else 0
    return None if start is None or within is None or ahead is None else start + within - ahead


def yearless_time(month: str, day: str, clock: str, reference_s: float) -> float | None:
    """Unix time of "11", "29", "16:12:50" or "Nov", "29", "16:12:50" in the nearest past year before `reference_s`."""
    within = clock_s(clock)
    if within is None:
        return None
    latest = reference_s + DAY_S - within
    start = _nearest_day(month, day, int(latest // DAY_S))
    return None if start is None else start + within


@lru_cache(maxsize=1024)
def _nearest_day(month: str, day: str, latest_day: int) -> int | None:
    """Unix time of the last such day that is not after a day, counted from 1970."""
    number = _MONTHS.get(month) or (int(month) if month.isdecimal() else 0)
    year = _year_of_day(max(0, min(latest_day, 2_900_000)))
    for candidate in range(year, year - 9, -1):  # a 29th of February may be eight years back
        start = day_s(candidate, number, int(day))
        if start is not None and start <= latest_day * DAY_S:
            return start
    return None


def month_number(name: str) -> str:
    """ "Nov" as "11"; "0" for what is no month."""
    return str(_MONTHS.get(name, 0))


def _year_of_day(day: int) -> int:
    year = 1970 + day * 400 // 146_097
    return next(
        candidate
        for candidate in (year + 1, year, year - 1)
        if candidate <= 1970 or (day_s(candidate, 1, 1) or 0) <= day * DAY_S
    )
