"""What an instance bears beyond its operating load: bursts, and the herd after a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vramledger.search.capacity.result import BurstRoom, RestartRoom
from vramledger.search.capacity.study import BASE, Burst, Measure, Outage, Task

FACTORS = (1.5, 2.0, 3.0, 5.0)
LENGTHS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
OUTAGES_S = (10.0, 30.0, 60.0, 180.0)

Shaped = Callable[[Sequence[Task]], list[list[Measure]]]


def bursts(shaped: Shaped, load: float, aim: float) -> tuple[BurstRoom, ...]:
    """The longest burst of each height whose own requests meet the aim, of a ladder of lengths."""
    tasks = [
        Task(case=BASE, replication=0, load=load, shape=Burst(factor=factor, lasts_s=length_s))
        for factor in FACTORS
        for length_s in LENGTHS_S
    ]
    measures = shaped(tasks)
    rooms = []
    for number, factor in enumerate(FACTORS):
        borne, missed = None, None
        for place, length_s in enumerate(LENGTHS_S):
            if _herd_goodput(measures[number * len(LENGTHS_S) + place]) < aim:
                missed = length_s
                break
            borne = length_s
        rooms.append(BurstRoom(factor=factor, borne_s=borne, missed_s=missed))
    return tuple(rooms)


def restarts(shaped: Shaped, load: float, in_flight_s: float) -> tuple[RestartRoom, ...]:
    """Outages of several lengths, each with what comes back at once and how long it takes to serve well again."""
    shapes = [Outage(down_s=down_s, in_flight_s=in_flight_s) for down_s in OUTAGES_S]
    found = shaped([Task(case=BASE, replication=0, load=load, shape=shape) for shape in shapes])
    return tuple(
        RestartRoom(
            down_s=shape.down_s,
            herd=max(item.herd for item in measures),
            herd_goodput=_herd_goodput(measures),
            calm_s=max(item.calm_s for item in measures),
        )
        for shape, measures in zip(shapes, found, strict=True)
    )


def _herd_goodput(measures: Sequence[Measure]) -> float:
    herd = sum(item.herd for item in measures)
    return sum(item.herd_good for item in measures) / herd if herd else 1.0
