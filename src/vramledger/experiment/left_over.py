"""Engines that an experiment started and could not end, for it was killed: they would hold memory beside those started anew.

A small file in the experiment's folder says which process was started by whom. Both are known by their id and by the instant of their start
(proc(5), field 22 of /proc/PID/stat), so that nobody else's process is ended that has got the id since.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from vramledger.telemetry.probes.proc import PROC, is_alive, start_ticks
from vramledger.whole_file import write_whole

MOST_NOTES = 100
LIMIT_BYTES = 4096
POLL_S = 0.1


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A process group that was started, by its leader, and by whom. Ticks of the system's clock since it booted."""

    pid: int
    start_ticks: int
    owner_pid: int
    owner_start_ticks: int


def note_started(folder: Path, pid: int, proc: Path = PROC) -> Path | None:
    """Remember that this process started `pid`, the leader of its group; None where the system does not tell instants.

    Raises OutputError where it cannot be written.
    """
    began, own = start_ticks(pid, proc), start_ticks(os.getpid(), proc)
    if began is None or own is None:
        return None
    path = folder / f".engine-{pid}.json"
    found = Started(pid=pid, start_ticks=began, owner_pid=os.getpid(), owner_start_ticks=own)
    write_whole(path, msgspec.json.encode(found))
    return path


def end_left_over(folder: Path, *, patience_s: float = 20.0, proc: Path = PROC) -> int:
    """End, first politely, what was started from `folder` by a process that is gone; how many there were. Files that are no such notes are left."""
    ended = 0
    for path in sorted(folder.glob(".engine-*.json"))[:MOST_NOTES]:
        found = _read(path)
        if found is None or _is_there(found.owner_pid, found.owner_start_ticks, proc):
            continue
        if _is_there(found.pid, found.start_ticks, proc):
            _end(found, patience_s, proc)
            ended += 1
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return ended


def _read(path: Path) -> Started | None:
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(LIMIT_BYTES), type=Started)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.pid > 1 else None


def _is_there(pid: int, began: int, proc: Path) -> bool:
    return start_ticks(pid, proc) == began and is_alive(pid, proc)


def _end(found: Started, patience_s: float, proc: Path) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(found.pid, sign)
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            if not _is_there(found.pid, found.start_ticks, proc):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(found.pid, signal.SIGKILL)  # workers whose parent ended without them
                return
            time.sleep(POLL_S)
