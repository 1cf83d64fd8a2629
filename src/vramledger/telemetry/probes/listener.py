"""Which process of this machine listens on a port, as Linux tells it under /proc.

Sources: Documentation/networking/proc_net_tcp.rst of the kernel (state 0A is LISTEN, the inode is the tenth column); proc(5) for /proc/PID/fd.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from vramledger.telemetry.probes.proc import MOST_PROCESSES, PROC

LISTEN = "0A"
_FILE_LIMIT_BYTES = 16 << 20


def listening_pid(host: str, port: int, proc: Path = PROC) -> int | None:
    """The process that listens on `port`, where `host` is this machine and its files are ours to see; the one with the lowest id where several
    do. None where none is found."""
    if not _is_own(host):
        return None
    inodes = {inode for table in ("tcp", "tcp6") for inode in _inodes(proc / "net" / table, port)}
    if not inodes:
        return None
    links = {f"socket:[{inode}]" for inode in inodes}
    try:
        pids = sorted(int(entry.name) for entry in os.scandir(proc) if entry.name.isdecimal())
    except OSError:
        return None
    return next((pid for pid in pids[:MOST_PROCESSES] if _holds(proc / str(pid) / "fd", links)), None)


def _is_own(host: str) -> bool:
    """Whether an address of that name can be bound here, as only a machine's own can."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind((address[0], 0))
                return True
        except OSError:
            continue
    return False


def _inodes(table: Path, port: int) -> set[str]:
    try:
        with table.open("rb") as file:
            lines = file.read(_FILE_LIMIT_BYTES).decode("ascii", "replace").splitlines()[1:]
    except OSError:
        return set()
    wanted = f":{port:04X}"
    rows = (line.split() for line in lines)
    return {
        row[9]
        for row in rows
        if len(row) > 9 and row[3] == LISTEN and row[1].endswith(wanted) and row[9] != "0"
    }


def _holds(folder: Path, links: set[str]) -> bool:
    try:
        with os.scandir(folder) as entries:
            paths = [Path(entry.path) for entry in entries]
    except OSError:
        return False
    for path in paths:
        try:
            if str(path.readlink()) in links:
                return True
        except OSError:
            continue
    return False
