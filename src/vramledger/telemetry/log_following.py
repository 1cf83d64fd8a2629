"""A log read while it is written, as `tail -F` does: it may not be there yet, be renamed away or be truncated."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from vramledger.errors import SourceError
from vramledger.telemetry.log_files import CHUNK_BYTES, LogSource, chunks_of
from vramledger.telemetry.log_tally import SourceTally


class Following(Struct, frozen=True, kw_only=True):
    """How to wait for what is written later.

    Each time there is nothing new, `stop` is asked whether to end (what has been written until then is still read), then
    `wait` waits for `poll_s`. After `quiet_s` without anything new, what waits for further lines of a message no longer
    does.
    """

    stop: Callable[[], bool] = lambda: False
    poll_s: float = 0.25
    quiet_s: float = 1.0
    wait: Callable[[float], None] = time.sleep


def followed(source: LogSource, tally: SourceTally, following: Following) -> Iterator[bytes | None]:
    """Chunks of a source as they come: bytes, empty ones for a pause, and None where another file takes its place.

    A stream that is no file is read to its end. Raises SourceError for a path that cannot be read.
    """
    if isinstance(source, str | Path) and str(source) != "-":
        yield from _file(Path(source), tally, following)
        return
    stream = sys.stdin.buffer if isinstance(source, str | Path) else source
    try:
        number = stream.fileno()
    except (OSError, AttributeError):
        yield from chunks_of(stream, tally)
        return
    yield from _pipe(number, tally, following)


def _pipe(number: int, tally: SourceTally, following: Following) -> Iterator[bytes | None]:
    paused = False
    while True:
        try:
            ready, _, _ = select.select([number], [], [], following.quiet_s)
        except OSError:  # what is no socket, on Windows
            ready = [number]
        if not ready:
            if following.stop():
                return
            if not paused:
                yield b""
            paused = True
            continue
        chunk = os.read(number, CHUNK_BYTES)
        if not chunk:
            return
        paused = False
        tally.size_bytes += len(chunk)
        yield chunk


def _file(path: Path, tally: SourceTally, following: Following) -> Iterator[bytes | None]:
    stream: BinaryIO | None = None
    quiet = 0.0
    paused = last = False
    position = 0
    try:
        while True:
            if stream is None:
                stream, position = _opened(path), 0
            chunk = stream.read(CHUNK_BYTES) if stream is not None else b""
            if chunk:
                position += len(chunk)
                tally.size_bytes += len(chunk)
                quiet, paused = 0.0, False
                yield chunk
                continue
            if stream is not None and _is_truncated(stream, position):
                stream.seek(0)
                position = 0
                yield None
                continue
            if stream is not None and _is_replaced(path, stream):
                chunk = stream.read(CHUNK_BYTES)  # written between the last reading and the renaming
                if chunk:
                    position += len(chunk)
                    tally.size_bytes += len(chunk)
                    yield chunk
                    continue
                stream.close()
                stream = None
                yield None
                continue
            if last:
                return
            if following.stop():
                last = True  # once more, for what was written meanwhile
                continue
            if quiet >= following.quiet_s and not paused:
                paused = True
                yield b""
            following.wait(following.poll_s)
            quiet += following.poll_s
    finally:
        if stream is not None:
            stream.close()


def _opened(path: Path) -> BinaryIO | None:
    """The file, None while there is none."""
    if path.is_dir():
        raise SourceError(f"{path}: is a directory; name the log file in it", source=str(path))
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise SourceError(f"{path}: {problem.strerror or problem}", source=str(path)) from None


def _is_truncated(stream: BinaryIO, position: int) -> bool:
    return os.fstat(stream.fileno()).st_size < position


def _is_replaced(path: Path, stream: BinaryIO) -> bool:
    """Whether the name means another file now; a name that means none yet is waited for."""
    with suppress(OSError):
        return not os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    return False
