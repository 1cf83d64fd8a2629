"""Keeping of a long log what a diagnosis can use: starts and failures, and of what repeats the lines around them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from vramledger.observation import Event, Observation

LINES_BEFORE, LINES_AFTER = 256, 128
MOST_OF_A_KIND = 500
MOST_OF_AN_EVENT = 5_000
_REPEATED = frozenset({Event.STEP, Event.ADMITTED, Event.FRAME, Event.GRAPH_SHAPE})


def thinned(items: Iterable[Observation]) -> Iterator[Observation]:
    """Observations in their order without most of those that repeat.

    Steps, admissions and frames stay where they stand near a failure, an end or a start; of one kind of message, or of any
    other event, the first some hundreds or thousands stay. Memory is bounded by the number of different things said.
    """
    recent: deque[Observation] = deque(maxlen=LINES_BEFORE)
    seen: Counter[object] = Counter()
    after = 0
    for item in items:
        often = item.event is Event.PREEMPTION and seen[item.event] >= MOST_OF_A_KIND
        if item.event in _REPEATED or often:
            if after > 0:
                after -= 1
                yield item
            else:
                recent.append(item)
            continue
        failed = item.event in (Event.FAILURE, Event.EXIT)
        kind = (item.event, item.values.get("message")) if failed else item.event
        seen[kind] += 1
        if seen[kind] > (MOST_OF_A_KIND if failed else MOST_OF_AN_EVENT):
            continue
        yield from recent
        recent.clear()
        yield item
        if failed:
            after = LINES_AFTER
    yield from recent
