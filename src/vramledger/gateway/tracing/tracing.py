"""Which requests are traced, and what is noted of them on their way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from vramledger.gateway.record import RequestRecord
from vramledger.gateway.tracing.prefix_identity import PrefixIdentity
from vramledger.gateway.tracing.settings import TraceSettings
from vramledger.gateway.tracing.spans import SpanDescription, blocks_span, spans_of
from vramledger.gateway.tracing.trace_context import RequestTrace, parent_of, tell_engine

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

MOST_POINTS = 64


class SpanSink(Protocol):
    """Takes spans and sends them in its own time; never waits."""

    @property
    def made(self) -> int: ...

    @property
    def exported(self) -> int: ...

    @property
    def lost(self) -> int:
        """Dropped because too many waited, or refused by whoever gets them."""

    def take(self, trace: RequestTrace, spans: Sequence[SpanDescription]) -> None: ...

    def close(self, within_s: float) -> None: ...


class Tracing:
    """An observer. What is not recorded costs a look at one header and a number at random."""

    def __init__(
        self,
        settings: TraceSettings,
        sink: SpanSink,
        *,
        instances: Sequence[str] = (),
        engine_of: Callable[[int], str] = lambda instance: "",
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`instances` are names; `engine_of` says which engine one is. `clock_ns` is the gateway's."""
        self._sink = sink
        self._follow = settings.follow_client
        self._bound = round(settings.ratio * 2**64)
        self._identity = PrefixIdentity(settings.prefix_secret)
        self._instances = tuple(instances)
        self._engine = engine_of
        self._engines: dict[int, str] = {}
        self._clock_ns = clock_ns
        self._wall_clock_ns = wall_clock_ns

    def arrived(self, record: RequestRecord, head: RequestHead) -> None:
        parent = parent_of(head.headers)
        bits = random.getrandbits(192)
        trace_id = parent.trace_id if parent is not None else (bits >> 64) or 1
        if parent is not None and self._follow:
            is_sampled = parent.is_sampled
        else:  # by the trace's last 64 bits, as OpenTelemetry's own sampler does it: all on a trace's way decide alike
            is_sampled = trace_id % 2**64 < self._bound
        record.trace = RequestTrace(
            trace_id=trace_id,
            span_id=bits % 2**64 or 1,
            parent_span_id=parent.span_id if parent is not None else 0,
            is_sampled=is_sampled,
            wall_offset_ns=self._wall_clock_ns() - self._clock_ns() if is_sampled else 0,
        )
        tell_engine(head.headers, record.trace, keep_state=parent is not None)

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None:
        trace = record.trace
        if trace is None or not trace.is_sampled:
            return
        trace.skipped += 1
        if trace.skipped < trace.stride:
            return
        trace.skipped = 0
        trace.progress.append((now_ns, output_tokens))
        if len(trace.progress) >= MOST_POINTS:  # every other one goes, and from now on half as many come
            del trace.progress[::2]
            trace.stride *= 2

    def ended(self, record: RequestRecord) -> None:
        trace = record.trace
        if trace is not None and trace.is_sampled:
            spans = list(spans_of(record, trace.progress, self._identity, self._engine_of))
            self._sink.take(trace, spans)

    def blocks_back(self, record: RequestRecord) -> None:
        """The engine was seen to hold an ended request's blocks no more: a span that comes after the others."""
        trace = record.trace
        if trace is not None and trace.is_sampled:
            self._sink.take(trace, [blocks_span(record)])

    def close(self, within_s: float = 5.0) -> None:
        """Sends what waits, as far as that is possible in time. To be called outside the event loop."""
        self._sink.close(within_s)

    def _engine_of(self, instance: int | None) -> tuple[str, str]:
        if instance is None:
            return "", ""
        name = self._instances[instance] if instance < len(self._instances) else str(instance)
        engine = self._engines.get(instance)
        if engine is None:  # asked until it is known, and then not at each request
            engine = self._engine(instance)
            if engine:
                self._engines[instance] = engine
        return name, engine
