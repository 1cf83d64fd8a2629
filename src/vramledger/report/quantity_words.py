"""Quantities as a person reads them: times, rates, shares, sizes, and their names."""

from __future__ import annotations

import re

from vramledger.units import KIB, MIB, format_bytes

NS_PER_S = 1_000_000_000
_ZEROS = re.compile(r"(\d+\.\d+)")
_SHOWN_BY_VALUE = frozenset({"bytes", "ns", "ms", "s", "ratio"})
_INITIALS = frozenset({"ttft", "tpot", "kv", "rss", "pss"})
_SCALES = ((60_000_000_000, "min"), (NS_PER_S, "s"), (1_000_000, "ms"), (1_000, "µs"))


def time_text(time_ns: float) -> str:
    """ "850 ms", "2.31 s", "42 µs"; three figures."""
    for scale, unit in _SCALES:
        if abs(time_ns) >= scale * (10 if unit == "min" else 1):
            return f"{figures(time_ns / scale)} {unit}"
    return f"{time_ns:.0f} ns"


def trimmed(text: str) -> str:
    """Without zeros that say nothing after a point: "2.00 s" as "2 s"."""
    return _ZEROS.sub(lambda found: found[1].rstrip("0").rstrip("."), text)


def percent(share: float) -> str:
    """A share that a person chose: "95 %", "99.9 %"."""
    return trimmed(f"{100 * share:.2f} %")


def figures(value: float) -> str:
    """Three figures, whole where there are more, with no exponent."""
    if value == 0:
        return "0"
    size = abs(value)
    places = (
        0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 3 if size >= 0.00995 else 4
    )
    return f"{value:,.{places}f}"


def share_text(share: float) -> str:
    """ "97.3 %"."""
    return f"{100 * share:.1f} %"


def rate_text(per_s: float) -> str:
    return f"{figures(per_s)}/s"


def quantity_text(value: float, unit: str) -> str:
    """A quantity by its unit: bytes and nanoseconds in a size that is read, ratios as shares, all else as it is."""
    if unit == "bytes":
        return ("-" if value < 0 else "") + _bytes(abs(round(value)))
    if unit == "ns":
        return time_text(value)
    if unit == "ms":
        return time_text(value * 1_000_000)
    if unit in ("s", "seconds"):
        return time_text(value * NS_PER_S)
    if unit == "per_s":
        return rate_text(value)
    if unit in ("ratio", "share"):
        return share_text(value)
    return f"{figures(value)} {unit}".rstrip()


def _bytes(size_bytes: int) -> str:
    return f"{size_bytes / KIB:.1f} KiB" if KIB <= size_bytes < MIB else format_bytes(size_bytes)


def unit_of(name: str) -> str:
    """The unit that a quantity's name ends in, "" for one that is counted or not known. What follows a blank ("ttft_ns p99") is no part."""
    first = name.partition(" ")[0]
    if first == "goodput":
        return "ratio"
    if first.endswith("_per_s"):
        return "per_s"
    end = first.rsplit("_", 1)[-1]
    return end if end in ("bytes", "ns", "ms", "s", "ratio", "tokens", "blocks", "requests") else ""


def plain_name(name: str) -> str:
    """A quantity's name in words, without its unit: "TTFT p99", "kv usage at rest"."""
    first, blank, rest = name.partition(" ")
    unit = unit_of(first)
    words = first.removesuffix(f"_{unit}") if unit in _SHOWN_BY_VALUE else first
    told = " ".join(
        word.upper() if word in _INITIALS else word
        for word in words.replace("_per_s", "_a_second").split("_")
    )
    return f"{told}{blank}{rest}"
