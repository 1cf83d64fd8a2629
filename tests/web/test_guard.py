"""The page's server before an attacker: other names, other sites, other paths, other bodies."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from vramledger.web.app import names_of
from vramledger.web.server import MOST_CONNECTIONS
from web_page import ROOT, Ui, serving

pytestmark = pytest.mark.timeout(300)
MODEL: dict[str, object] = {"command": "model", "sources": ["builtin:Llama-3.1-8B-Instruct"]}
ASK = json.dumps(MODEL).encode()


class Said(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


def port_of(ui: Ui) -> int:
    port = urlsplit(ui.address).port
    assert port is not None
    return port


def asked(
    ui: Ui, method: str, path: str, headers: dict[str, str] | list[tuple[str, str]], body: bytes = b""
) -> Said:
    """What is answered to exactly these headers; Host is the server's own unless one is given."""
    given = list(headers.items()) if isinstance(headers, dict) else headers
    connection = http.client.HTTPConnection("127.0.0.1", port_of(ui), timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if not any(name.lower() == "host" for name, _ in given):
            connection.putheader("Host", f"127.0.0.1:{port_of(ui)}")
        for name, value in given:
            connection.putheader(name, value)
        if body:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        return Said(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


def test_the_page_itself_is_answered(ui: Ui) -> None:
    assert asked(ui, "POST", "/api/run", {"x-vramledger-token": ui.token}, ASK).status == 200
    own = {"x-vramledger-token": ui.token, "Origin": ui.address, "Sec-Fetch-Site": "same-origin"}
    assert asked(ui, "POST", "/api/run", own, ASK).status == 200
    for name in ("localhost", "[::1]", "LOCALHOST"):
        assert asked(ui, "GET", "/", {"Host": f"{name}:{port_of(ui)}"}).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1.evil.example:{port}", "127.0.0.1:1", "localhost:{port}.evil.example",
     "evil.example@127.0.0.1:{port}", "127.0.0.2:{port}", "0.0.0.0:{port}", "[::]:{port}", "", "localhost:{port},evil.example"],
)  # fmt: skip
def test_a_name_that_leads_here_is_not_answered(ui: Ui, host: str) -> None:
    """A name of an attacker's may be made to point at this machine; the browser then takes the answers for those of his site."""
    for path in ("/", "/api/catalogue", "/static/app.css"):
        said = asked(ui, "GET", path, {"Host": host.format(port=port_of(ui)), "x-vramledger-token": ui.token})
        assert said.status in (400, 421)
        assert ui.token.encode() not in said.body


def test_on_the_port_of_http_a_browser_names_none() -> None:
    assert names_of(["localhost", "::1"], 80) == {"localhost", "localhost:80", "[::1]", "[::1]:80"}
    assert names_of(["localhost", "::1"], 8417) == {"localhost:8417", "[::1]:8417"}


def test_two_names_are_none(ui: Ui) -> None:
    own = f"127.0.0.1:{port_of(ui)}"
    for pair in (
        [("Host", own), ("Host", "evil.example")],
        [("Host", "evil.example"), ("Host", own)],
        [("Host", own), ("Host", own)],
    ):
        assert asked(ui, "GET", "/", pair).status in (400, 421)


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"x-vramledger-token": ""}, {"x-vramledger-token": "x" * 32}, {"x-vramledger-token": "{token}x"}, {"Cookie": "x-vramledger-token={token}"},
        {"x-vramledger-token": "{token}", "Origin": "http://evil.example"}, {"x-vramledger-token": "{token}", "Origin": "null"},
        {"x-vramledger-token": "{token}", "Origin": "http://localhost:1"}, {"x-vramledger-token": "{token}", "Sec-Fetch-Site": "cross-site"},
        {"x-vramledger-token": "{token}", "Sec-Fetch-Site": "same-site"}, {"Content-Type": "application/x-www-form-urlencoded"},
        {"Authorization": "Bearer {token}"},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "path",
    [
        "/api/run",
        "/api/uploads?name=a.json",
        "/api/live/watch",
        "/api/live/measure",
        "/api/catalogue",
        "/api/live",
    ],
)
def test_another_site_cannot_ask(ui: Ui, path: str, headers: dict[str, str]) -> None:
    given = {name: value.format(token=ui.token) for name, value in headers.items()}
    said = asked(ui, "GET" if path in ("/api/catalogue", "/api/live") else "POST", path, given, ASK)
    assert said.status == 403
    assert said.header("access-control-allow-origin") is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_other_methods_are_not_taken(ui: Ui, method: str) -> None:
    said = asked(
        ui, method, "/api/run", {"x-vramledger-token": ui.token, "Access-Control-Request-Method": "POST"}
    )
    assert said.status in (400, 405)
    assert said.header("access-control-allow-origin") is None
    assert asked(ui, "POST", "/", {"x-vramledger-token": ui.token}).status == 405


@pytest.mark.parametrize("path", ["/", "/static/app.css", "/static/none.js", "/none", "/api/catalogue"])
@pytest.mark.parametrize("host", [None, "evil.example"])
def test_every_answer_says_what_may_be_loaded(ui: Ui, path: str, host: str | None) -> None:
    said = asked(ui, "GET", path, {} if host is None else {"Host": host})
    policy = said.header("content-security-policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    scripts = policy.split("script-src")[1].split(";")[0]
    assert "unsafe" not in scripts and "*" not in policy and "http" not in policy
    assert (
        "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy and "connect-src 'self'" in policy
    )
    assert said.header("x-content-type-options") == "nosniff"
    assert said.header("server") is None


@pytest.mark.parametrize(
    "path",
    ["../../web/app.py", "../app.py", "..%2f..%2fweb%2fapp.py", "%2e%2e/app.py", "....//app.py", "..%5capp.py", "..\\app.py", "/etc/passwd", "//etc/passwd",
     "%2fetc%2fpasswd", "lib/../../app.py", "lib/%2e%2e/%2e%2e/app.py", "app.css%00.py", "app.css/", "lib", "", ".", "app.CSS", "vendor/../../catalogue.py",
     "file:///etc/passwd", "%c0%ae%c0%ae/app.py"],
)  # fmt: skip
def test_only_the_pages_own_files_are_sent(ui: Ui, path: str) -> None:
    said = asked(ui, "GET", f"/static/{path}", {})
    assert said.status in (400, 404)
    assert b"import" not in said.body and b"root:" not in said.body


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"command":', b'{"command":"plan","sources":"x"}', b'{"command":"plan","more":1}', b"\xff\xfe", b"[" * 100_000,
     b'{"command":"' + b"a" * 900_000 + b'"}', b" " * 1_100_000, b'{"command":"ui"}', b'{"command":"gateway"}', b'{"command":"sample"}',
     b'{"command":"plan","options":{"html_file":"/tmp/x.html"}}', b'{"command":"plan","sources":["/etc/passwd"]}', b'{"command":"plan","sources":["builtin:../x"]}',
     b'{"command":"plan","sources":["upload:../../etc"]}', b'{"command":"reconcile","files":{"write_plan":"upload:x"}}'],
)  # fmt: skip
def test_what_is_no_question_is_refused_in_a_sentence(ui: Ui, body: bytes) -> None:
    for path in ("/api/run", "/api/live/watch"):
        said = asked(ui, "POST", path, {"x-vramledger-token": ui.token}, body or b" ")
        assert said.status in (200, 400)
        assert len(said.body) < 2_000
        assert b"Traceback" not in said.body
        if path == "/api/run":
            assert said.status == 400 and json.loads(said.body)["error"]
        else:
            assert json.loads(said.body.splitlines()[-1])["ended"]["exit_code"] != 0


def test_a_client_that_is_slow_or_cut_off_holds_up_nobody(ui: Ui) -> None:
    head = f"POST /api/run HTTP/1.1\r\nHost: 127.0.0.1:{port_of(ui)}\r\nx-vramledger-token: {ui.token}\r\nContent-Length: {len(ASK)}\r\n\r\n".encode()
    slow = []
    for sent in (
        b"",
        head[:20],
        head,
        head + ASK[:10],
        b"\x16\x03\x01\x00" * 50,
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * 200_000,
    ):
        connection = socket.create_connection(("127.0.0.1", port_of(ui)), timeout=60)
        connection.sendall(sent)
        slow.append(connection)
    assert ui.run(MODEL)["exit_code"] == 0
    for connection in slow:
        connection.close()
    assert ui.run(MODEL)["exit_code"] == 0


def test_connections_that_ask_nothing_keep_nobody_out(ui: Ui) -> None:
    """More of them than are taken at once: the longest unheard goes for who comes next."""
    head = f"GET /static/app.css HTTP/1.1\r\nHost: 127.0.0.1:{port_of(ui)}\r\n".encode()
    endless = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port_of(ui)}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n".encode()
    held = []
    try:
        for place in range(2 * MOST_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", port_of(ui)), timeout=60)
            held.append(connection)
            connection.sendall((b"", b"GET / HT", head, endless)[place % 4])
        assert asked(ui, "GET", "/", {}).status == 200
        assert ui.run(MODEL)["exit_code"] == 0
    finally:
        for connection in held:
            connection.close()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A page that others reach: its key and its port."""
    command = [sys.executable, "-m", "vramledger", "ui", "--host", "127.0.0.2", "--port", "0", "--no-open"]
    folder = tmp_path_factory.mktemp("keyed")
    with subprocess.Popen(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://127\.0\.0\.2:(\d+)/\?key=(\S+)", process.stderr.readline())
            if found is None:
                pytest.skip("this machine has no 127.0.0.2")
            yield found[2], int(found[1])
        finally:
            process.terminate()
            process.wait(60)


def test_where_others_reach_it_a_key_is_asked_for(keyed: tuple[str, int]) -> None:
    key, port = keyed

    def get(path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Said:
        connection = http.client.HTTPConnection("127.0.0.2", port, timeout=60)
        try:
            connection.request(
                method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return Said(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    for path in (
        "/",
        "/static/app.css",
        "/api/catalogue",
        "/?key=wrong",
        "/?key=",
        f"/static/app.css?key={key}",
    ):
        assert get(path).status == 403
    assert get("/", Cookie=f"vramledger-key={key}x").status == 403
    entered = get(f"/?key={key}")
    assert (entered.status, entered.header("location")) == (303, "/")
    cookie = entered.header("set-cookie")
    assert cookie is not None
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    # Another server of the same machine sets cookies too, by this name or with signs that some readers refuse.
    for beside in (
        f"vramledger-key=x; vramledger-key={key}",
        f'a={{"b": 1}}; vramledger-key={key}',
        f"=; ;vramledger-key={key};",
    ):
        assert get("/", Cookie=beside).status == 200
    own = f"vramledger-key={key}"
    page = get("/", Cookie=own)
    assert page.status == 200
    token = re.search(rb'vramledger-token" content="([^"]+)"', page.body)
    assert token is not None
    assert get("/api/catalogue", x_vramledger_token=token[1].decode()).status == 403
    assert get("/api/catalogue", x_vramledger_token=token[1].decode(), Cookie=own).status == 200
    # This machine's own servers are not everybody's.
    ask = b'{"engine": "http://127.0.0.1:9"}'
    said = get("/api/live/watch", "POST", ask, x_vramledger_token=token[1].decode(), Cookie=own)
    assert "not one that was given" in json.loads(said.body)["ended"]["message"]


def test_a_server_says_nothing_of_what_it_was_sent(tmp_path: Path) -> None:
    """Its standard error is where the page's address stands, and no traceback of what others do."""
    import threading

    with serving(tmp_path) as ui:
        threads = [threading.Thread(target=cut_off, args=(ui, kind)) for kind in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ui.run(MODEL)["exit_code"] == 0
        said = ui.ended()
    assert said == ""


def cut_off(ui: Ui, kind: int) -> None:
    path = ("/api/uploads?name=a.json", "/api/run", "/api/live/measure", "/static/app.css")[kind]
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port_of(ui)}\r\nx-vramledger-token: {ui.token}\r\nContent-Length: 50\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(ui)), timeout=60) as connection:
        connection.sendall(head.encode() + b"{")
        time.sleep(0.2)
