"""Engines that read HTTP by other parsers than the gateway's, and note each request that they see."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple

SERIAL = "x-serial"
"""Of an answer: which of the requests that the engine saw it answers."""


class Seen(NamedTuple):
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


class RecordingEngine:
    """Answers everything with 200 and the number that the request has in `seen`; `problems` are what its parser did not take."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._server = self._make_server()
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def _make_server(self) -> socketserver.TCPServer:
        raise NotImplementedError

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> RecordingEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def note(self, seen: Seen) -> int:
        with self._lock:
            self.seen.append(seen)
            return len(self.seen) - 1

    def answer(self, seen: Seen) -> bytes:
        path = seen.target.partition("?")[0]
        if seen.method == "POST" and path == "/tokenize":
            return json.dumps({"tokens": [1] * min(len(seen.body), 64), "count": 64}).encode()
        return json.dumps(
            {
                "choices": [{"message": {"content": "a"}, "text": "a"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1},
            }
        ).encode()


class HttpServerEngine(RecordingEngine):
    """By Python's http.server."""

    def _make_server(self) -> socketserver.TCPServer:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm: ClassVar[Any] = True

            def _serve(self) -> None:
                if self.headers.get("Transfer-Encoding") is not None:
                    engine.problems.append("a request had a transfer coding")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                seen = Seen(self.command, self.path, list(self.headers.items()), body)
                answer, serial = engine.answer(seen), engine.note(seen)
                self.send_response(200)
                self.send_header(SERIAL, str(serial))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            def __getattr__(self, name: str) -> Any:  # do_GET and so on
                if name.startswith("do_"):
                    return self._serve
                raise AttributeError(name)

            def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
                engine.problems.append(f"http.server: {code} {message}")
                self.close_connection = True

            def log_message(self, *_: Any) -> None: ...

        return _Server(("127.0.0.1", 0), Handler)


class H11Engine(RecordingEngine):
    """By h11, a strict parser of the grammar of the RFC."""

    def _make_server(self) -> socketserver.TCPServer:
        engine = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                engine.serve_h11(self.request)

        return _Server(("127.0.0.1", 0), Handler)

    def serve_h11(self, connection: socket.socket) -> None:
        import h11

        state = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        head: h11.Request | None = None
        body = b""
        while True:
            try:
                event = state.next_event()
            except h11.RemoteProtocolError as problem:
                self.problems.append(f"h11: {problem}")
                return
            if event is h11.NEED_DATA:
                try:
                    state.receive_data(connection.recv(65_536))
                except OSError:
                    return
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = [
                    (name.decode("latin-1"), text.decode("latin-1"))
                    for name, text in head.headers.raw_items()
                ]
                seen = Seen(head.method.decode("latin-1"), head.target.decode("latin-1"), headers, body)
                answer, serial = self.answer(seen), self.note(seen)
                out = state.send(
                    h11.Response(
                        status_code=200,
                        headers=[
                            (SERIAL, str(serial)),
                            ("content-type", "application/json"),
                            ("content-length", str(len(answer))),
                        ],
                    )
                )
                if head.method != b"HEAD":
                    out = (out or b"") + (state.send(h11.Data(data=answer)) or b"")
                out = (out or b"") + (state.send(h11.EndOfMessage()) or b"")
                try:
                    connection.sendall(out)
                except OSError:
                    return
                if state.our_state is not h11.DONE:
                    return
                state.start_next_cycle()
            else:
                return


class _Server(ThreadingHTTPServer):
    request_queue_size = 512

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None: ...


ENGINES: dict[str, type[RecordingEngine]] = {"http.server": HttpServerEngine, "h11": H11Engine}
