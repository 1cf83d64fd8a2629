"""What several sources said, in one order."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from vramledger.observation import Observation


def in_order(observations: Iterable[Observation]) -> list[Observation]:
    """By time over all sources, each source in its own order.

    A line without a time stands at the last time its source told before it, else at the first it tells after; a source that
    never tells one comes after all others, in the order given.
    """
    by_source: dict[str, list[Observation]] = {}
    for item in observations:
        by_source.setdefault(item.place.source, []).append(item)
    keyed: list[tuple[float, int, int, Observation]] = []
    for number, items in enumerate(by_source.values()):
        times = [item.at_s for item in items if item.at_s is not None]
        at = times[0] if times else inf
        for index, item in enumerate(items):
            if item.at_s is not None:
                at = max(at, item.at_s)
            keyed.append((at, number, index, item))
    keyed.sort(key=lambda entry: entry[:3])
    return [item for _, _, _, item in keyed]
