"""A hub of one repository on 127.0.0.1, which keeps a record of what it was asked."""

from __future__ import annotations

import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(Struct):
    """`error` is a status and X-Error-Code for every answer, `answer` a body in place of the model's info; without `ranges` whole files are sent."""

    folder: Path
    repo: str = "org/model"
    ranges: bool = True
    error: tuple[int, str] | None = None
    stated_sizes: dict[str, int | None] = field(default_factory=dict)
    cdn: str = ""
    requests: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    sent_bytes: dict[str, int] = field(default_factory=dict)
    failures_left: int = 0
    endpoint: str = ""
    answer: bytes | None = None

    def info(self) -> dict[str, Any]:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        siblings = []
        for path in files:
            name = path.relative_to(self.folder).as_posix()
            siblings.append({"rfilename": name, "size": self.stated_sizes.get(name, path.stat().st_size)})
        return {"id": self.repo, "sha": COMMIT, "siblings": siblings, "tags": []}

    def ranges_of(self, name: str) -> list[tuple[int, int]]:
        """First and last byte of every GET of a file."""
        out = []
        for method, path, asked, _ in self.requests:
            if method == "GET" and path.endswith("/" + name):
                match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
                assert match is not None, f"{path} was asked for without a range"
                out.append((int(match.group(1)), int(match.group(2))))
        return out

    def start(self) -> ThreadingHTTPServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer()

            def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for key, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def answer(self) -> None:
                path = unquote(urlsplit(self.path).path)
                asked = self.headers.get("Range")
                hub.requests.append((self.command, path, asked, self.headers.get("Authorization")))
                if hub.failures_left > 0 and asked is not None:
                    hub.failures_left -= 1
                    self.send(503, b"", {})
                elif hub.error is not None:
                    self.send(hub.error[0], b"{}", {"X-Error-Code": hub.error[1]})
                elif path == f"/api/models/{hub.repo}/revision/main":
                    self.send(
                        200,
                        hub.answer or json.dumps(hub.info()).encode(),
                        {"Content-Type": "application/json"},
                    )
                elif path.startswith("/api/models/"):
                    self.send(
                        404,
                        b"{}",
                        {"X-Error-Code": "RevisionNotFound" if hub.repo in path else "RepoNotFound"},
                    )
                else:
                    self.file(path.rpartition("/resolve/")[2].partition("/")[2] or path.lstrip("/"), asked)

            def file(self, name: str, asked: str | None) -> None:
                local = hub.folder / name
                if not local.is_file():
                    self.send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
                    return
                if hub.cdn and "/resolve/" in self.path and name.endswith(".safetensors"):
                    self.send(302, b"", {"Location": f"{hub.cdn}/{name}", "X-Repo-Commit": COMMIT})
                    return
                data = local.read_bytes()
                etag = hashlib.sha256(data).hexdigest()
                headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
                match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
                if match and hub.ranges:
                    start, last = int(match.group(1)), int(match.group(2))
                    headers["Content-Range"] = f"bytes {start}-{last}/{len(data)}"
                    data = data[start : last + 1]
                if self.command == "GET":
                    hub.sent_bytes[name] = hub.sent_bytes.get(name, 0) + len(data)
                self.send(206 if match and hub.ranges else 200, data, headers)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server
