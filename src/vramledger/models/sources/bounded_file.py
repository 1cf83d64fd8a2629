"""Opening files that may be anything: regular files only, so many bytes only, no surprise in the message."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vramledger.errors import SourceError, VramledgerError

ReadAt = Callable[[int, int], bytes]
"""`read_at(offset, size)` gives up to `size` bytes at `offset`; fewer only at the end of the file."""


def path_of(text: str) -> Path:
    """A path as a person writes it: "~" is the home folder, or itself where there is none."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def shown(path: Path | str) -> str:
    """A path or a name from a file as it may be printed: no control characters, no undecodable bytes."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace") if isinstance(path, Path) else path
    plain = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return plain if len(plain) <= 300 else plain[:297] + "..."


def quote(value: object, limit: int = 60) -> str:
    """A value from a file, quoted and cut for a message."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def regular_file_bytes(path: Path) -> int:
    """The size of a regular file (symbolic links followed).

    Raises SourceError for anything else: a missing file, a folder, a pipe, a device.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as problem:
        raise _unreadable(path, problem) from None
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{shown(path)} is not a regular file", file=shown(path))
    return status.st_size


def read_whole(path: Path, limit_bytes: int, error: type[VramledgerError]) -> bytes:
    """The whole of a regular file of at most `limit_bytes`; `error` is raised for a larger one."""
    size_bytes = regular_file_bytes(path)
    if size_bytes > limit_bytes:
        raise error(
            f"{shown(path)} has {size_bytes} bytes, more than the {limit_bytes} this file may have",
            file=shown(path),
            value=size_bytes,
        )
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as problem:
        raise _unreadable(path, problem) from None
    if len(data) > limit_bytes:
        raise error(f"{shown(path)} grew beyond {limit_bytes} bytes while it was read", file=shown(path))
    return data


@contextmanager
def open_for_headers(path: Path) -> Iterator[tuple[ReadAt, int]]:
    """A regular file as (read_at, size in bytes); nothing is read until asked for.

    Raises SourceError where the file cannot be opened or read.
    """
    size_bytes = regular_file_bytes(path)
    try:
        file = path.open("rb", buffering=0)
    except OSError as problem:
        raise _unreadable(path, problem) from None

    def read_at(offset: int, size: int) -> bytes:
        parts = []
        try:
            file.seek(offset)
            while size > 0 and (part := file.read(min(size, 2**26))):
                parts.append(part)
                size -= len(part)
        except OSError as problem:
            raise _unreadable(path, problem) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    with file:
        yield read_at, size_bytes


def _unreadable(path: Path, problem: Exception) -> SourceError:
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return SourceError(f"{shown(path)} cannot be read: {reason}", file=shown(path))
