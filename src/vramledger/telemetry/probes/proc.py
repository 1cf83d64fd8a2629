"""Host memory of processes as Linux tells it under /proc. No library is needed.

Sources: Documentation/filesystems/proc.rst of the kernel (smaps_rollup since 4.14, status, stat).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from vramledger.errors import SourceError
from vramledger.units import KIB

PROC = Path("/proc")
MOST_PROCESSES = 200_000
MOST_OF_A_TREE = 4_096
_FILE_LIMIT_BYTES = 2**20


class ProcessMemory(Struct, frozen=True, kw_only=True):
    """One process. PSS, shared and private are None where the kernel does not let us see them (another user's process):
    RSS is then from `status`."""

    pid: int
    name: str
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None
    swap_bytes: int | None = None
    peak_rss_bytes: int | None = None
    from_rollup: bool = False


def proc_absent(proc: Path = PROC) -> str | None:
    """Why there is no /proc to read, None where there is."""
    if (proc / "meminfo").is_file():
        return None
    return f"host memory is not available here: no {proc}/meminfo ({sys.platform})"


def process_memory(pid: int, proc: Path = PROC) -> ProcessMemory:
    """Memory of one process now. Raises SourceError where there is no such process."""
    folder = proc / str(pid)
    status = _fields(folder / "status")
    if status is None:
        raise SourceError(f"there is no process {pid}", pid=pid)
    name = _name(folder, pid)
    rollup = _fields(folder / "smaps_rollup")
    peak = _bytes(status, "VmHWM")
    if not rollup or "Rss" not in rollup:
        return ProcessMemory(
            pid=pid,
            name=name,
            rss_bytes=_bytes(status, "VmRSS"),
            swap_bytes=_bytes(status, "VmSwap"),
            peak_rss_bytes=peak,
        )
    return ProcessMemory(
        pid=pid,
        name=name,
        rss_bytes=_bytes(rollup, "Rss"),
        pss_bytes=_bytes(rollup, "Pss"),
        shared_bytes=_sum(rollup, "Shared_Clean", "Shared_Dirty"),
        private_bytes=_sum(rollup, "Private_Clean", "Private_Dirty"),
        swap_bytes=_bytes(rollup, "Swap"),
        peak_rss_bytes=peak,
        from_rollup=True,
    )


def tree_memory(pid: int, proc: Path = PROC) -> tuple[ProcessMemory, ...]:
    """Memory of a process and all that it started, in the order of their ids; those that end meanwhile are left out.

    Raises SourceError where there is no process `pid`.
    """
    found = [process_memory(pid, proc)]
    for member in sorted(process_tree(pid, proc) - {pid}):
        try:
            found.append(process_memory(member, proc))
        except SourceError:
            continue
    return tuple(found)


def process_tree(pid: int, proc: Path = PROC) -> set[int]:
    """Ids of a process and of its descendants that live now."""
    children: dict[int, list[int]] = {}
    for member, parent in _parents(proc):
        children.setdefault(parent, []).append(member)
    found: set[int] = set()
    waiting = [pid]
    while waiting and len(found) < MOST_OF_A_TREE:
        member = waiting.pop()
        if member not in found:
            found.add(member)
            waiting += children.get(member, ())
    return found


def host_memory_bytes(proc: Path = PROC) -> dict[str, int]:
    """The machine's memory: "host_total_bytes", "host_available_bytes", "host_free_bytes"; what is not told is not there."""
    fields = _fields(proc / "meminfo") or {}
    named = {
        "host_total_bytes": "MemTotal",
        "host_available_bytes": "MemAvailable",
        "host_free_bytes": "MemFree",
    }
    sizes = ((name, _bytes(fields, field)) for name, field in named.items())
    return {name: size for name, size in sizes if size is not None}


def is_alive(pid: int, proc: Path = PROC) -> bool:
    """Whether a process runs; a zombie, which holds no memory, does not."""
    stat = _read(proc / str(pid) / "stat")
    return stat is not None and stat.rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process began, in ticks of the system's clock since it booted: with its id this names it for good. None where there is none."""
    stat = _read(proc / str(pid) / "stat")
    words = [] if stat is None else stat.rpartition(b")")[2].split()
    return int(words[19]) if len(words) > 19 and words[19].isdigit() else None


def _parents(proc: Path) -> Iterator[tuple[int, int]]:
    try:
        names = [entry.name for entry in os.scandir(proc) if entry.name.isdecimal()]
    except OSError:
        return
    for name in names[:MOST_PROCESSES]:
        stat = _read(proc / name / "stat")
        # The command stands in parentheses and may itself hold any of them.
        words = [] if stat is None else stat.rpartition(b")")[2].split()
        if len(words) > 1 and words[1].isdigit():
            yield int(name), int(words[1])


def _name(folder: Path, pid: int) -> str:
    """What the process calls itself: its title (which engines set, "VLLM::Worker_TP0") or its command's short name."""
    title = (_read(folder / "cmdline") or b"").split(b"\0")[0].decode("utf-8", "replace")
    comm = (_read(folder / "comm") or b"").decode("utf-8", "replace").strip()
    if title and "/" not in title and "::" in title:
        return title[:200]
    return (comm or Path(title).name or str(pid))[:200]


def _fields(path: Path) -> dict[str, str] | None:
    """Lines "Name: value"; None where the file is not there or not for us."""
    data = _read(path)
    if data is None:
        return None
    pairs = (line.partition(":") for line in data.decode("utf-8", "replace").splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _bytes(fields: dict[str, str], name: str) -> int | None:
    words = fields.get(name, "").split()
    if len(words) != 2 or words[1] != "kB" or not words[0].isdecimal() or len(words[0]) > 13:
        return None
    return int(words[0]) * KIB


def _sum(fields: dict[str, str], *names: str) -> int | None:
    sizes = [_bytes(fields, name) for name in names]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(_FILE_LIMIT_BYTES)
    except (OSError, ValueError):
        return None
