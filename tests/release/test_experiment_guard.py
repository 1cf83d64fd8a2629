"""Whether an engine is still there: by its own word where it was started here, by any answer where it ran already."""

from __future__ import annotations

import http.server
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vramledger.release.experiment.guard import Guard
from vramledger.telemetry.engine_process import ending_of, free_port


@contextmanager
def answering(status: int) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [200, 401, 404])
def test_a_server_without_a_health_address_is_not_gone(status: int) -> None:
    with answering(status) as url, Guard(url, None, patience_s=0.1) as guard:
        pass
    assert guard.words == ""


@pytest.mark.parametrize("status", [500, 503])
def test_one_that_says_that_it_is_unwell_is(status: int) -> None:
    with answering(status) as url, Guard(url, None, patience_s=0.1) as guard:
        pass
    assert "did not answer" in guard.words


def test_one_that_nobody_hears_of_is_gone() -> None:
    with Guard(f"http://127.0.0.1:{free_port()}", None, patience_s=0.1) as guard:
        assert guard.stop.wait(60)
    assert "did not answer" in guard.words


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "signal SIGKILL"), (-(signal.SIGRTMIN + 1), "signal 35"), (-200, "signal 200")],
)  # fmt: skip
def test_every_end_has_words(code: int, words: str) -> None:
    assert ending_of(code) == words
