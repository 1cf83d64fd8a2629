"""What an instance bears beyond its operating load: bursts, and the herd after a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vramledger.search.capacity.result import BurstRoom, RestartRoom
from vramledger.search.capacity.study import BASE, Burst, Measure, Outage, Task

FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0)
LENGTHS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
OUTAGES_S = (10.0, 30.0, 60.0, 180.0, 600.0)
# A burst must end, and as much again as an outage must follow it, before the requests run out.
_BURST_SHARE, _OUTAGE_SHARE = 0.6, 0.375

Shaped = Callable[[Sequence[Task]], list[list[Measure]]]


def bursts(shaped: Shaped, load: float, span_s: float) -> tuple[BurstRoom, ...]:
    """The goodput of a burst's own requests, by its height and length; height 1 is the same requests without a burst.

    `span_s` is how long requests come at that load; a burst that takes more of them than that has is left out.
    """
    shapes = [
        Burst(factor=factor, lasts_s=length_s)
        for factor in FACTORS
        for length_s in LENGTHS_S
        if factor * length_s <= _BURST_SHARE * span_s
    ]
    found = shaped([Task(case=BASE, replication=0, load=load, shape=shape) for shape in shapes])
    return tuple(
        BurstRoom(
            factor=shape.factor,
            lasts_s=shape.lasts_s,
            requests=sum(item.herd for item in measures),
            goodput=_herd_goodput(measures),
        )
        for shape, measures in zip(shapes, found, strict=True)
    )


def restarts(shaped: Shaped, load: float, span_s: float, in_flight_s: float) -> tuple[RestartRoom, ...]:
    """Outages of several lengths, each with what comes back at once and how long it takes to serve well again."""
    shapes = [
        Outage(down_s=down_s, in_flight_s=in_flight_s)
        for down_s in OUTAGES_S
        if down_s <= _OUTAGE_SHARE * span_s
    ]
    found = shaped([Task(case=BASE, replication=0, load=load, shape=shape) for shape in shapes])
    return tuple(
        RestartRoom(
            down_s=shape.down_s,
            herd=max(item.herd for item in measures),
            herd_goodput=_herd_goodput(measures),
            calm_s=_longest([item.calm_s for item in measures]),
        )
        for shape, measures in zip(shapes, found, strict=True)
    )


def _herd_goodput(measures: Sequence[Measure]) -> float:
    herd = sum(item.herd for item in measures)
    return sum(item.herd_good for item in measures) / herd if herd else 1.0


def _longest(times_s: Sequence[float | None]) -> float | None:
    known = [item for item in times_s if item is not None]
    return max(known) if len(known) == len(times_s) else None
