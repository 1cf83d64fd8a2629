"""What a control group holds, may hold, and how often it killed for memory, in versions 1 and 2.

Sources: Documentation/admin-guide/cgroup-v2.rst (memory.current, memory.max, memory.peak, memory.events) and
cgroup-v1/memory.rst (memory.usage_in_bytes, memory.limit_in_bytes, memory.max_usage_in_bytes, memory.failcnt,
memory.oom_control) of the kernel.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from vramledger.telemetry.probes.proc import PROC

CGROUPS = Path("/sys/fs/cgroup")
NO_LIMIT_BYTES = 2**62  # version 1 writes a number near 2**63 where there is none
_FILE_LIMIT_BYTES = 2**16


class GroupMemory(Struct, frozen=True, kw_only=True):
    """One control group. `limit_bytes` is None where there is none; counts are since the group began."""

    version: int
    path: str
    current_bytes: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kill_count: int | None = None
    limit_hit_count: int | None = None


def group_memory(pid: int, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> GroupMemory | None:
    """Memory of the control group that a process is in; None where no memory controller is to be seen.

    In a container the path may be that of the host, which the container does not see: then the nearest group
    above that it sees is taken, which for a container's own view is its own.
    """
    for version, path in _paths(proc / str(pid) / "cgroup"):
        for base in (cgroups,) if version == 2 else (cgroups / "memory",):
            for folder in _upwards(base, path):
                found = _version_2(folder) if version == 2 else _version_1(folder)
                if found is not None:
                    return found
    return None


def _paths(file: Path) -> list[tuple[int, str]]:
    """(version, path) of the groups that count memory, version 1 first, as a hybrid host has the controller there."""
    found = []
    for line in (_text(file) or "").splitlines():
        number, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if not colon or not second:
            continue
        if number == "0" and not controllers:
            found.append((2, path))
        elif "memory" in controllers.split(","):
            found.append((1, path))
    return sorted(found)


def _upwards(base: Path, path: str) -> list[Path]:
    words = [word for word in path.split("/") if word not in ("", ".", "..")][:100]
    return [base.joinpath(*words[:count]) for count in range(len(words), -1, -1)]


def _version_2(folder: Path) -> GroupMemory | None:
    current = _number(folder / "memory.current")
    if current is None:
        return None
    events = _events(folder / "memory.events")
    return GroupMemory(
        version=2,
        path=str(folder),
        current_bytes=current,
        limit_bytes=_number(folder / "memory.max"),
        peak_bytes=_number(folder / "memory.peak"),
        oom_kill_count=events.get("oom_kill"),
        limit_hit_count=events.get("max"),
    )


def _version_1(folder: Path) -> GroupMemory | None:
    current = _number(folder / "memory.usage_in_bytes")
    if current is None:
        return None
    limit = _number(folder / "memory.limit_in_bytes")
    return GroupMemory(
        version=1,
        path=str(folder),
        current_bytes=current,
        limit_bytes=None if limit is None or limit >= NO_LIMIT_BYTES else limit,
        peak_bytes=_number(folder / "memory.max_usage_in_bytes"),
        oom_kill_count=_events(folder / "memory.oom_control").get("oom_kill"),
        limit_hit_count=_number(folder / "memory.failcnt"),
    )


def _events(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in (_text(path) or "").splitlines())
    return {
        pair[0]: int(pair[1])
        for pair in pairs
        if len(pair) == 2 and pair[1].isdecimal() and len(pair[1]) < 19
    }


def _number(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _text(path: Path) -> str | None:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(_FILE_LIMIT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
