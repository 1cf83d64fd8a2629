"""All that a gateway tells of itself, as one thing to build, to ask and to close."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vramledger.errors import InputError
from vramledger.gateway.blocks_back import BlocksBack
from vramledger.gateway.counters import Counters
from vramledger.gateway.memory_facts import with_memory
from vramledger.gateway.metrics import table
from vramledger.gateway.metrics.exposition import exposition, load_writer
from vramledger.gateway.metrics.metric import Series
from vramledger.gateway.metrics.requests import RequestMetrics
from vramledger.gateway.metrics.states import counter_series, gateway_series, instance_series
from vramledger.gateway.record import Observer, Observers, RequestRecord
from vramledger.gateway.request_log import RequestLog
from vramledger.gateway.shared.keeper import SharingCounters
from vramledger.gateway.snapshot import GatewayState, MemoryFacts
from vramledger.gateway.tracing.settings import TraceSettings
from vramledger.gateway.tracing.tracing import SpanSink, Tracing
from vramledger.gateway.turns import Turns
from vramledger.gateway.version import installed_version


class Telemetry:
    """Metrics always, a log of requests where a file is named, traces where an endpoint is.

    `observers` go to the gateway. `tenants`, `models` and `instances` are names from the configuration; without `models` those of completed
    requests are learned. `memory` is what is known of engines' devices beforehand, for what they do not say themselves.
    `sharing` counts what happened between this gateway and the store, where several share engines. `engine_of` says which engine an instance is, by its number. Raises InputError where a library is not installed.
    """

    def __init__(
        self,
        *,
        tenants: Sequence[str] = (),
        models: Sequence[str] = (),
        instances: Sequence[str] = (),
        memory: Sequence[MemoryFacts] = (),
        sharing: SharingCounters | None = None,
        log: Path | None = None,
        traces: TraceSettings | None = None,
        engine_of: Callable[[int], str] = lambda instance: "",
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        load_writer()
        self.requests = RequestMetrics(tenants=tenants, models=models, instances=instances)
        self._memory = dict(enumerate(memory))
        self.log = RequestLog(log) if log is not None else None
        self.blocks_back = BlocksBack(self._blocks_back)
        self._sharing = sharing
        self.tracing: Tracing | None = None
        self._sink: SpanSink | None = None
        if traces is not None:
            self._sink = _otlp_sink(traces)
            self.tracing = Tracing(
                traces, self._sink, instances=instances, engine_of=engine_of, clock_ns=clock_ns
            )

    @property
    def observers(self) -> list[Observer]:
        further: list[Observer | None] = [self.log, self.tracing, self.blocks_back]
        return [Turns(), self.requests, *(observer for observer in further if observer is not None)]

    def sampled(self, instance: int, at_ns: int, used_blocks: int | None, booked_blocks: int | None) -> None:
        """An engine was asked for its state: what it held at `at_ns`, and what the books say that it should."""
        self.blocks_back.sampled(instance, at_ns, used_blocks, booked_blocks)

    def exposition(
        self, state: GatewayState, counters: Counters, observers: Observers | None, *, accept: str = ""
    ) -> tuple[bytes, str]:
        """The metrics' text and its content type, by the Accept header of who asks."""
        return exposition(self._series(state, counters, observers), accept=accept)

    def reopen_log(self) -> None:
        if self.log is not None:
            self.log.reopen()

    def close(self, within_s: float = 5.0) -> None:
        """Writes and sends what is left. May wait so long, and so is not for the event loop."""
        if self.log is not None:
            self.log.close(within_s)
        if self.tracing is not None:
            self.tracing.close(within_s)

    def _blocks_back(self, record: RequestRecord) -> None:
        self.requests.blocks_back(record)
        if self.tracing is not None:
            self.tracing.blocks_back(record)

    def _series(
        self, state: GatewayState, counters: Counters, observers: Observers | None
    ) -> Iterator[Series]:
        yield from instance_series(
            tuple(
                with_memory(one, self._memory[place]) if place in self._memory else one
                for place, one in enumerate(state.instances)
            )
        )
        yield from gateway_series(state)
        yield from counter_series(counters)
        if self._sharing is not None:
            yield from counter_series(self._sharing)
        yield from self.requests.series()
        failures = observers.failures if observers is not None else 0
        yield Series(metric=table.OBSERVER_FAILURES, values=[((), failures)])
        yield Series(metric=table.UNSEEN_BLOCKS, values=[((), self.blocks_back.unseen)])
        if self.log is not None:
            lines = [(("written",), self.log.written), (("lost",), self.log.lost)]
            yield Series(metric=table.LOG_LINES, values=lines)
        if (sink := self._sink) is not None:
            spans = [(("made",), sink.made), (("exported",), sink.exported), (("lost",), sink.lost)]
            yield Series(metric=table.SPANS, values=spans)
        yield Series(metric=table.BUILD, values=[((installed_version(),), 1)])


def _otlp_sink(settings: TraceSettings) -> SpanSink:
    try:
        from vramledger.gateway.tracing.otlp import OtlpSink
    except ImportError as error:
        raise InputError("traces need OpenTelemetry's SDK: pip install 'vramledger[otel]'") from error
    return OtlpSink(settings)
