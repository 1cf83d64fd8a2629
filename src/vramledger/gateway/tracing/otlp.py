"""Spans on their way to a collector, by OpenTelemetry's SDK: a bounded queue, a thread that sends it, OTLP over HTTP.

The SDK's own sampler and context are not used: a request's span is made when it has ended, with the identity that the engine was told at
its beginning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from vramledger.gateway.tracing.settings import TraceSettings
from vramledger.gateway.tracing.spans import SpanDescription
from vramledger.gateway.tracing.trace_context import RequestTrace
from vramledger.gateway.version import installed_version

LOG = logging.getLogger(__name__)
BATCH_SPANS = 512
DELAY_MS = 1000


class OtlpSink:
    """A sink of spans. Its counts are read while it works: what is neither exported nor lost yet waits."""

    def __init__(self, settings: TraceSettings, *, delay_ms: int = DELAY_MS) -> None:
        self.made = 0
        self._exporter = CountingExporter(
            OTLPSpanExporter(
                endpoint=settings.endpoint, headers=dict(settings.headers), timeout=settings.timeout_s
            )
        )
        self._ids = _GivenIds()
        self._dropped = 0
        self._queue_spans = settings.queue_spans
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(
                {"service.name": settings.service_name, "service.version": installed_version()}
            ),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=settings.queue_spans,
                max_export_batch_size=min(BATCH_SPANS, settings.queue_spans),
                schedule_delay_millis=delay_ms,
            )
        )
        self._tracer = self._provider.get_tracer("vramledger.gateway", installed_version())

    @property
    def exported(self) -> int:
        return self._exporter.exported

    @property
    def lost(self) -> int:
        return self._dropped + self._exporter.failed

    def take(self, trace: RequestTrace, spans: Sequence[SpanDescription]) -> None:
        waiting = self.made - self._dropped - self._exporter.taken
        if (
            waiting + len(spans) > self._queue_spans
        ):  # the SDK would drop older ones, of traces that are half sent
            self.made += len(spans)
            self._dropped += len(spans)
            return
        for span in spans:
            self._take(trace, span)

    def _take(self, trace: RequestTrace, described: SpanDescription) -> None:
        self.made += 1
        parent = trace.parent_span_id if described.is_request else trace.span_id
        if described.is_request:
            self._ids.trace_id, self._ids.span_id = 0 if parent else trace.trace_id, trace.span_id
        span = self._tracer.start_span(
            described.name,
            context=_context(trace.trace_id, parent) if parent else Context(),
            kind=SpanKind.SERVER if described.is_request else SpanKind.INTERNAL,
            attributes=described.attributes,
            start_time=described.start_ns + trace.wall_offset_ns,
        )
        for event in described.events:
            span.add_event(event.name, event.attributes, event.at_ns + trace.wall_offset_ns)
        if described.error:
            span.set_status(Status(StatusCode.ERROR, described.error))
        span.end(max(described.start_ns, described.end_ns) + trace.wall_offset_ns)

    def close(self, within_s: float) -> None:
        """A collector that does not answer is not waited for longer than `within_s`."""
        closer = threading.Thread(target=self._provider.shutdown, name="traces-close", daemon=True)
        closer.start()
        closer.join(within_s)


class CountingExporter(SpanExporter):
    """Passes batches on and counts what became of them."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.taken = self.exported = self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        try:
            result = self._exporter.export(spans)
        except Exception:
            LOG.exception("spans could not be sent")
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _GivenIds(IdGenerator):
    """Identities that were given out before, once each; else such as come by chance. Used by one thread."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.trace_id = self.span_id = 0

    def generate_span_id(self) -> int:
        given, self.span_id = self.span_id, 0
        return given or self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        given, self.trace_id = self.trace_id, 0
        return given or self._random.generate_trace_id()


def _context(trace_id: int, span_id: int) -> Context:
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(parent), Context())
