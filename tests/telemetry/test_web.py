"""Asking a server: bounded in size and time, one host, no surprises."""

from __future__ import annotations

import socket
import time
from http.server import BaseHTTPRequestHandler

import pytest

from telemetry.http_server import answer, files, serving
from vramledger.errors import FlagError, SourceError
from vramledger.telemetry.web import checked_url, fetch, fetch_body


def test_an_answer_is_read_whole() -> None:
    with serving(files({"/metrics?a=b": b"x" * 200_000})) as url:
        answered = fetch(f"{url}/metrics?a=b")
    assert (answered.status, len(answered.body)) == (200, 200_000)


def test_other_statuses_are_told() -> None:
    with serving(files({})) as url, pytest.raises(SourceError, match="answers 404 Not Found"):
        fetch_body(f"{url}/metrics")


def test_a_token_is_sent_as_asked_and_its_lack_is_told() -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        answer(request, 200 if request.headers.get("Authorization") == "Bearer s3cret" else 401)

    with serving(respond) as url:
        assert fetch_body(url, token="s3cret") == b""
        with pytest.raises(SourceError, match="--token-env"):
            fetch_body(url)


def test_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving(files({"/a": b"here"})) as url:
        assert fetch_body(f"{url}/a") == b"here"


def test_a_redirect_on_the_same_host_is_followed_and_another_is_not() -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        target = {
            "/a": "/b",
            "/away": "http://localhost:1/b",
            "/round": "/round",
            "/file": "file:///etc/passwd",
        }
        if request.path in target:
            answer(request, 307, headers={"Location": target[request.path]})
        else:
            answer(request, 200, b"there")

    with serving(respond) as url:
        assert fetch_body(f"{url}/a") == b"there"
        with pytest.raises(SourceError, match="another host"):
            fetch(f"{url}/away")
        with pytest.raises(SourceError, match="circle"):
            fetch(f"{url}/round")
        with pytest.raises(FlagError):
            fetch(f"{url}/file")


def test_a_body_without_end_is_cut_off() -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b"a 1\n" * 4096)

    with serving(respond) as url, pytest.raises(SourceError, match="more than 100,000 bytes"):
        fetch(url, limit_bytes=100_000)


@pytest.mark.parametrize("in_headers", [True, False])
def test_a_server_that_dribbles_is_left(in_headers: bool) -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.0 200 OK\r\n" + (b"" if in_headers else b"\r\n"))
        for _ in range(400):
            request.wfile.write(b"X-A: b\r\n" if in_headers else b"x")
            request.wfile.flush()
            time.sleep(0.05)

    with serving(respond) as url, pytest.raises(SourceError, match=r"longer than 0\.3 s"):
        fetch(url, limit_s=0.3)


def test_a_coding_that_was_not_asked_for_is_refused() -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        answer(request, 200, b"\x1f\x8b", {"Content-Encoding": "gzip"})

    with serving(respond) as url, pytest.raises(SourceError, match="coding"):
        fetch(url)


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SourceError, match="cannot be asked: Connection refused"):
        fetch(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "text", ["ftp://a", "http://", "http://u:p@a/", "http://a b", "http://a:0", "http://a:x", "http://a/\x1b[1m", "http://a#b"]
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(FlagError):
        checked_url(text)


def test_a_host_alone_is_an_address() -> None:
    assert checked_url("127.0.0.1:8000/") == "http://127.0.0.1:8000"
