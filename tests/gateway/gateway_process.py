"""The real command in a process of its own, and what it says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.client import WAIT_S, Answer, read_answer


class GatewayProcess:
    """`events` are the lines that were read so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    async def event(self, name: str) -> dict[str, Any]:
        """The next event of that name."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            while line := await self.process.stdout.readline():
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == name:
                    return self.events[-1]
        assert self.process.stderr is not None
        raise AssertionError(f"no {name}: {self.events} {(await self.process.stderr.read()).decode()}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> tuple[int, str]:
        """Its exit code, and everything that it said but did not yet."""
        async with asyncio.timeout(WAIT_S):
            out, err = await self.process.communicate()
        self.events += [json.loads(line) for line in out.splitlines()]
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@asynccontextmanager
async def gateway_process(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[GatewayProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vramledger", "gateway", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *arguments,
        env={**os.environ, **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield GatewayProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
            async with asyncio.timeout(WAIT_S):
                await process.wait()


async def admin(port: int, target: str, *, method: str = "GET", headers: str = "") -> Answer:
    """One question to an admin port."""
    host = "" if "host:" in headers.lower() else f"Host: 127.0.0.1:{port}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            f"{method} {target} HTTP/1.1\r\n{host}{headers}Content-Length: 0\r\n\r\n".encode("latin-1")
        )
        return await read_answer(reader)
    finally:
        writer.transport.abort()


def write_config(folder: Path, text: str) -> str:
    path = folder / "gateway.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)
