"""States and counters as series. What is None is left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import Any

from vramledger.gateway.counters import Counters
from vramledger.gateway.metrics import table
from vramledger.gateway.metrics.metric import Metric, Series
from vramledger.gateway.shared.keeper import SharingCounters
from vramledger.gateway.snapshot import GatewayState, InstanceState


def gateway_series(state: GatewayState) -> Iterator[Series]:
    for metric in table.OF_GATEWAY:
        yield Series(metric=metric, values=[((), _value(metric, state))])


def counter_series(counters: Counters | SharingCounters) -> Iterator[Series]:
    for metric in table.OF_COUNTERS if isinstance(counters, Counters) else table.OF_SHARING:
        yield Series(metric=metric, values=[((), getattr(counters, metric.field))])


def instance_series(states: tuple[InstanceState, ...]) -> Iterator[Series]:
    for metric in table.OF_UPSTREAMS:
        values = [((state.name,), value) for state in states if (value := _value(metric, state)) is not None]
        yield Series(metric=metric, values=values)
    yield Series(metric=table.UPSTREAM_INFO, values=[((state.name, state.engine), 1) for state in states])


def _value(metric: Metric, state: object) -> float:
    value = _getter(metric.field)(state)
    return value if metric.divisor == 1 or value is None else value / metric.divisor  # type: ignore[no-any-return]


@cache
def _getter(field: str) -> Any:
    return attrgetter(field)
