"""A collector of the tests: takes OTLP over HTTP on a real socket, decodes it, and may be slow or refuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """`spans` are what came, in order; `resources` what they were said to be of."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/v1/traces"
        self.spans: list[Span] = []
        self.resources: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.go_on = threading.Event()
        self.go_on.set()

    def named(self, name: str) -> Span:
        (span,) = [span for span in self.spans if span.name == name]
        return span


def attributes(values: list[KeyValue]) -> dict[str, object]:
    return {
        pair.key: getattr(pair.value, kind) for pair in values if (kind := pair.value.WhichOneof("value"))
    }


def told(span: Span) -> dict[str, object]:
    return attributes(list(span.attributes))


@contextmanager
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.go_on.wait(60)
            if taken.status == 200 and self.path == "/v1/traces":
                taken.headers.append({name.lower(): value for name, value in self.headers.items()})
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    taken.resources.append(attributes(list(resource.resource.attributes)))
                    for scope in resource.scope_spans:
                        taken.spans += scope.spans
            self.send_response(taken.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    taken = Collector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        taken.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
