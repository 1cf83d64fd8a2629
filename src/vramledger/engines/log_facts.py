"""What engines' logs have in common when their observations become a measurement: the last start-up of several, values
of one observation, and evidence that says where each was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from vramledger.evidence import Evidence, measured
from vramledger.ledger import ByteRange
from vramledger.measurement import MeasurementSource
from vramledger.observation import Event, Observation
from vramledger.pool import IntRange

MOST_KEPT = 50_000

_SERVING = frozenset({Event.STEP, Event.ADMITTED, Event.PREEMPTION})


class StartUp(Struct, frozen=True, kw_only=True):
    """One start-up: what was said from its beginning on, steps of serving left out; how many start-ups the log holds,
    and the sources that were read with the times they span."""

    said: tuple[Observation, ...]
    count: int
    sources: tuple[MeasurementSource, ...]

    def of(self, *events: Event) -> tuple[Observation, ...]:
        """What was said of these events, in order."""
        return tuple(item for item in self.said if item.event in events)

    def first(self, name: str, *events: Event) -> Observation | None:
        """The first observation of these events that has a value of this name."""
        return next((item for item in self.of(*events) if name in item.values), None)

    def last(self, name: str, *events: Event) -> Observation | None:
        """The last one that has it."""
        return next((item for item in reversed(self.of(*events)) if name in item.values), None)


def last_start(
    observations: Iterable[Observation], begins: Callable[[Observation, AbstractSet[Event]], bool]
) -> StartUp:
    """The last start-up. `begins` tells whether an observation opens a new one, given the events since the last opening.

    At most 50,000 observations of it are kept, the first ones: what a start-up prints comes first.
    """
    said: list[Observation] = []
    seen: set[Event] = set()
    count = 0
    spans: dict[str, tuple[float | None, float | None]] = {}
    for item in observations:
        name = item.place.source
        first, last = spans.get(name, (None, None))
        spans[name] = (
            first if first is not None else item.at_s,
            item.at_s if item.at_s is not None else last,
        )
        if begins(item, seen):
            said, seen = [], set()
            count += 1
        seen.add(item.event)
        if item.event not in _SERVING and len(said) < MOST_KEPT:
            said.append(item)
    sources = tuple(
        MeasurementSource(name=name, kind="log", from_s=first, until_s=last)
        for name, (first, last) in spans.items()
    )
    return StartUp(said=tuple(said), count=max(count, 1 if said else 0), sources=sources)


def said_by(item: Observation, engine: str, version: str | None, formula: str = "") -> Evidence:
    """Measured, with a source like "server.log:12, sglang 0.5.23"."""
    return measured(f"{item.place}, {engine} {version}" if version else f"{item.place}, {engine}", formula)


def size_of(item: Observation | None, name: str) -> ByteRange | None:
    """A printed size of an observation; None where it is not there."""
    value = item.values.get(name) if item is not None else None
    return value if isinstance(value, ByteRange) else None


def count_of(item: Observation | None, name: str) -> int | None:
    """A whole number of an observation that is not negative; None where it is not there."""
    value = item.values.get(name) if item is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text_of(item: Observation | None, name: str) -> str | None:
    """A text of an observation; None where it is not there."""
    value = item.values.get(name) if item is not None else None
    return value if isinstance(value, str) and value else None


def counted(count: int | None) -> IntRange | None:
    """A count that a log states, as a range without width."""
    return None if count is None else IntRange(count, count, count)


def sum_of(sizes: Sequence[ByteRange | None]) -> ByteRange | None:
    """The sum of sizes; None where one is missing or there are none."""
    total: ByteRange | None = None
    for size in sizes:
        if size is None:
            return None
        total = size if total is None else total + size
    return total


def between(before: ByteRange, after: ByteRange) -> ByteRange:
    """What free memory lost between two prints: each may be off by its rounding, and it may have grown."""
    return before - after


def ranks_of(rank: int | None) -> tuple[int, ...]:
    """The ranks a figure speaks of."""
    return () if rank is None else (rank,)
