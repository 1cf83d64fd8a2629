"""The routes of the tab Live: `vramledger watch` line by line, and one measurement."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from vramledger.errors import VramledgerError
from vramledger.web.ask import CommandLine
from vramledger.web.replies import answer, as_line, asked, document_in, said
from vramledger.web.sights import LiveAsk, Sights, measure_line, watch_line
from vramledger.web.uploads import Upload, Uploads
from vramledger.web.workers import BUSY, SERVER_ENDS, ended

MOST_AT_ONCE = 8
MEASURE_S = 120
LARGEST_LINE_BYTES = 32 << 20
_LINES = "application/x-ndjson"
_MOST_HEARD = 8
_END_S = 5
# A document on one line; errors are published on several.
_LOOK = b'{"schema_version"'


class Lookout:
    """`command` starts `vramledger`, with the rights of who serves the page: it is given nothing that a page chose but an allowed address."""

    def __init__(self, command: Sequence[str], sights: Sights, uploads: Uploads) -> None:
        self._command = tuple(command)
        self._sights = sights
        self._uploads = uploads
        self._running = 0
        self._processes: set[asyncio.subprocess.Process] = set()
        self._is_ending = False

    async def end(self) -> None:
        """End all that look; who is told by them is told so."""
        self._is_ending = True
        await asyncio.gather(*(ended(process) for process in self._processes))

    def routes(self) -> list[Route]:
        return [
            Route("/api/live", self.known),
            Route("/api/live/watch", self.watch, methods=["POST"]),
            Route("/api/live/measure", self.measure, methods=["POST"]),
        ]

    async def known(self, _request: Request) -> Response:
        """What may be looked at."""
        seen = self._sights
        return answer(
            {
                "engines": seen.engines,
                "gateways": seen.gateways,
                "own_machine": seen.own_machine,
                "has_log": bool(seen.logs),
                "has_processes": bool(seen.pids),
                "has_nvml": seen.nvml,
            }
        )

    async def watch(self, request: Request) -> Response:
        """Lines of JSON: the command, then each look as the command writes it, at the end how it ended."""
        try:
            line = watch_line(await asked(request, LiveAsk), self._sights)
        except VramledgerError as problem:
            return Response(_end(problem.exit_code, problem.message), media_type=_LINES)
        return StreamingResponse(self._looks(line), media_type=_LINES, headers={"cache-control": "no-store"})

    async def measure(self, request: Request) -> Response:
        """The document of `vramledger measure`, and the upload that it was kept as for commands to read."""
        try:
            line = measure_line(await asked(request, LiveAsk), self._sights)
        except VramledgerError as problem:
            return answer(_untold(problem.exit_code, problem.message))
        if self._running >= MOST_AT_ONCE:
            return answer(_untold(BUSY, "as many looks are taken as may be at once: try again"))
        self._running += 1
        process = None
        try:
            process = await self._started(line)
            async with asyncio.timeout(MEASURE_S):
                out, err = await process.communicate()
        except TimeoutError:
            return answer(_untold(1, f"not measured within {MEASURE_S} s"))
        finally:
            await self._done(process)
        code = process.returncode or 0
        document = document_in(out)
        kept = await self._kept(out) if code == 0 and document is not None else None
        return answer(
            {
                "exit_code": code,
                "command": line.shown,
                "message": said(err.decode("utf-8", "replace")),
                "document": document,
                "source": None if kept is None else f"upload:{kept.id}",
            }
        )

    async def _looks(self, line: CommandLine) -> AsyncIterator[bytes]:
        if self._is_ending:
            yield _end(1, SERVER_ENDS)
            return
        if self._running >= MOST_AT_ONCE:
            yield _end(BUSY, f"{MOST_AT_ONCE} pages look on already: close one")
            return
        self._running += 1
        process = None
        try:
            yield as_line({"command": line.shown})
            process = await self._started(line)
            assert process.stdout is not None and process.stderr is not None
            heard: deque[bytes] = deque(maxlen=_MOST_HEARD)
            hearing = asyncio.create_task(_hear(process.stderr, heard))
            try:
                while look := await process.stdout.readline():
                    if look.startswith(_LOOK):
                        yield look
            except ValueError:
                heard.append(b"an answer is larger than a page can show")
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _END_S)
            await ended(process)
            await hearing
            yield _end(process.returncode or 0, said(b"".join(heard).decode("utf-8", "replace")))
        finally:
            await self._done(process)

    async def _started(self, line: CommandLine) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *line.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LARGEST_LINE_BYTES,
            start_new_session=True,
        )
        self._processes.add(process)
        return process

    async def _done(self, process: asyncio.subprocess.Process | None) -> None:
        self._running -= 1
        if process is not None:
            self._processes.discard(process)
        await asyncio.shield(ended(process))

    async def _kept(self, document: bytes) -> Upload:
        async def whole() -> AsyncIterator[bytes]:
            yield document

        return await self._uploads.add("measurement.json", whole())


async def _hear(stream: asyncio.StreamReader, heard: deque[bytes]) -> None:
    while part := await stream.read(4096):
        heard.append(part)


def _end(code: int, message: str) -> bytes:
    return as_line({"ended": {"exit_code": code, "message": message}})


def _untold(code: int, message: str) -> dict[str, object]:
    return {"exit_code": code, "command": "", "message": message, "document": None, "source": None}
