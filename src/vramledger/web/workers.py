"""Processes that run the commands behind the page: one kept warm for quick ones, one of its own for each long one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

QUICK_S = 60
LONG_S = 3600
MOST_LONG = 4
SERVER_ENDS = "the page's server ends"
BUSY = 75
"""Exit code of what was not begun because as much runs as may, as EX_TEMPFAIL."""
_LONGEST_LINE = 80_000_000
_END_S = 2
# Of a worker that was ended, or that ended, before it answered; no command ends so.
_NO_ANSWER = 70
# A command's process is given no more of the environment than it needs to start: keys are often kept there.
_NAMES = frozenset(["PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "LD_LIBRARY_PATH", "SYSTEMROOT", "COVERAGE_PROCESS_START"])  # fmt: skip
_BEGINNINGS = ("PYTHON", "LC_", "NUMBA_", "OMP_", "MKL_", "OPENBLAS_")


class Reply(Struct, frozen=True, kw_only=True):
    """How a command ended: its exit code, what it printed, and what it said beside that."""

    exit_code: int
    out: str
    err: str


class Told(Struct, frozen=True, kw_only=True):
    """How far a command is."""

    told: str


class Busy(Exception):
    """As many long commands run as may."""


class Workers:
    """`command` starts a worker (`vramledger.cli.worker`)."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._warm: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._alone: set[asyncio.subprocess.Process] = set()
        self._long = 0
        self._is_ending = False

    async def start(self) -> None:
        """Have the warm one ready before it is asked."""
        self._warm = await self._started()

    async def end(self) -> None:
        """End all that run; who asked is told so. None is started afterwards."""
        self._is_ending = True
        await asyncio.gather(ended(self._warm), *(ended(process) for process in self._alone))
        if self._running:
            await asyncio.wait(self._running)

    async def run(self, arguments: Sequence[str], *, is_long: bool) -> AsyncIterator[Told | Reply]:
        """How far it is, any number of times, then the reply. Leaving early ends the command. Raises Busy."""
        if self._is_ending:
            yield _unanswered(SERVER_ENDS)
            return
        if is_long:
            async for said in self._run_alone(arguments):
                yield said
            return
        heard: asyncio.Queue[Told | Reply] = asyncio.Queue()
        left = asyncio.Event()
        running = asyncio.create_task(self._run_warm(arguments, heard, left))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            while True:
                each = await heard.get()
                yield each
                if isinstance(each, Reply):
                    return
        finally:
            left.set()

    async def _run_warm(
        self, arguments: Sequence[str], heard: asyncio.Queue[Told | Reply], left: asyncio.Event
    ) -> None:
        """To the end also where who asked has left meanwhile: that costs milliseconds, a new process a hundred times as many."""
        async with self._turn:
            if left.is_set():
                return
            if self._is_ending:
                heard.put_nowait(_unanswered(SERVER_ENDS))
                return
            if self._warm is None or self._warm.returncode is not None:
                self._warm = await self._started()
            is_whole = False
            async for each in _said(self._warm, arguments, QUICK_S):
                heard.put_nowait(each)
                is_whole = isinstance(each, Reply) and each.exit_code != _NO_ANSWER
            if not is_whole and not self._is_ending:
                await ended(self._warm)
                self._warm = await self._started()

    async def _run_alone(self, arguments: Sequence[str]) -> AsyncIterator[Told | Reply]:
        if self._long >= MOST_LONG:
            raise Busy
        self._long += 1
        process = None
        try:
            process = await self._started()
            self._alone.add(process)
            async for said in _said(process, arguments, LONG_S):
                yield said
        finally:
            self._long -= 1
            if process is not None:
                self._alone.discard(process)
            await asyncio.shield(ended(process))

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LONGEST_LINE,
            env={
                name: value
                for name, value in os.environ.items()
                if name in _NAMES or name.startswith(_BEGINNINGS)
            },
            start_new_session=True,
        )


async def _said(
    process: asyncio.subprocess.Process, arguments: Sequence[str], within_s: float
) -> AsyncIterator[Told | Reply]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(msgspec.json.encode(arguments) + b"\n")
    try:
        async with asyncio.timeout(within_s):
            await process.stdin.drain()
            while line := await process.stdout.readline():
                said = msgspec.json.decode(line, type=dict[str, str | int])
                if "told" in said:
                    yield Told(told=str(said["told"]))
                else:
                    yield msgspec.convert(said, Reply)
                    return
    except TimeoutError:
        yield _unanswered(f"not done within {within_s:g} s, and ended")
        return
    except (ConnectionError, ValueError):
        pass
    code = await process.wait()
    yield _unanswered(f"the command's process ended ({code}); memory may have run out")


def _unanswered(why: str) -> Reply:
    return Reply(exit_code=_NO_ANSWER, out="", err=f"vramledger: {why}\n")


async def ended(process: asyncio.subprocess.Process | None) -> None:
    """End a process that leads a group and all that it started, first politely; nothing where there is none or it has ended."""
    if process is None or process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _END_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
