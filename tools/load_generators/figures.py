"""What a load generator told, held against what the server noted."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from tools.load_generators.server import Note
from tools.ranks import nearest_rank

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator says of its own run: a list has one entry a request, in any order. `late_ms` is by how much it says it was late itself, at the
    median and the 99th percentile, None where it does not tell."""

    first_token_ns: list[int]
    token_gap_ns: list[int]
    late_ms: tuple[float, float] | None = None
    failed: int = 0


def streams(notes: Sequence[Note], told: Told, due_ns: Sequence[int] | None) -> dict[str, Any]:
    """How far what was told is from what was, at the median and the 99th percentile, in milliseconds. `due_ns` is the schedule that was to be
    kept (None: the generator drew its own)."""
    true_first = [one.first_ns - one.read_ns for one in notes if one.first_ns >= 0]
    true_gap = [(one.last_ns - one.first_ns) // (one.sent_events - 1) for one in notes if one.sent_events > 1]
    span_ns = notes[-1].read_ns - notes[0].read_ns
    found: dict[str, Any] = {
        "requests": len(notes),
        "told of": len(told.first_token_ns),
        "arrivals a second": round((len(notes) - 1) * NS_PER_S / span_ns, 1),
        "streams at most": _open_at_most(notes),
        "first token, true": pair_ms(true_first),
        "first token, told": pair_ms(told.first_token_ns),
        "token gap, true": pair_ms(true_gap),
        "token gap, told": pair_ms(told.token_gap_ns),
        "late, told": told.late_ms,
    }
    if due_ns is not None and len(due_ns) == len(notes):
        after = [one.read_ns - due for one, due in zip(notes, due_ns, strict=True)]
        least = min(after)
        found["late at the server"] = pair_ms([one - least for one in after])
    return found


def arrivals(notes: Sequence[Note]) -> dict[str, Any]:
    """The process that the server saw: the variation of its gaps (1 of a Poisson process), and how much a gap says of the next one (0)."""
    gaps = [later.read_ns - earlier.read_ns for earlier, later in pairwise(notes)]
    mean = statistics.fmean(gaps)
    return {
        "requests": len(notes),
        "arrivals a second": round(NS_PER_S / mean, 1),
        "variation of gaps": round(statistics.pstdev(gaps) / mean, 2),
        "correlation with the next gap": round(statistics.correlation(gaps[:-1], gaps[1:]), 2),
    }


def refused(notes: Sequence[Note], told: Told) -> dict[str, Any]:
    """What became of requests that were to come again later."""
    answered = sum(one.status == 200 for one in notes)
    return {
        "refused": len(notes) - answered,
        "asked in all": len(notes),
        "answered": answered,
        "told as failed": told.failed,
    }


def turns(notes: Sequence[Note], told: Told) -> dict[str, Any]:
    """Whether later turns carry what was answered before, and how long after its end they come."""
    pauses_ns, carried = [], 0
    for one in notes:
        if one.marks:
            carried += 1
            last = notes[max(one.marks)]
            pauses_ns.append(one.read_ns - last.last_ns)
    return {
        "requests": len(notes),
        "with an earlier answer in them": carried,
        "sent after its parent's end, ms": pair_ms(pauses_ns) if pauses_ns else None,
    }


def _open_at_most(notes: Sequence[Note]) -> int:
    edges = sorted(
        [(one.read_ns, 1) for one in notes] + [(max(one.last_ns, one.read_ns), -1) for one in notes]
    )
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def pair_ms(values_ns: Sequence[int]) -> tuple[float, float] | None:
    """Median and 99th percentile in milliseconds."""
    if not values_ns:
        return None
    p50, p99 = (round(nearest_rank(values_ns, percent) / NS_PER_MS, 2) for percent in (50, 99))
    return p50, p99
