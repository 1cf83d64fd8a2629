"""The bytes of logs: files, gzip, standard input, streams. The only place here that opens a file."""

from __future__ import annotations

import codecs
import hashlib
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from vramledger.errors import SourceError
from vramledger.telemetry.log_tally import SourceTally

CHUNK_BYTES = 2**20
# Deflate cannot make more than 1032 bytes of one, and logs shrink ten- to fiftyfold.
MOST_EXPANSION = 300
FREE_EXPANSION_BYTES = 64 * 2**20

LogSource = str | Path | BinaryIO


def source_name(source: LogSource) -> str:
    """What a place calls it."""
    if isinstance(source, str | Path):
        return "<stdin>" if str(source) == "-" else str(source)
    return str(getattr(source, "name", "<stream>"))


def reference_s(source: LogSource) -> float:
    """When a log was last written: a file's time of change, else now."""
    if isinstance(source, str | Path) and str(source) != "-":
        try:
            return min(Path(source).stat().st_mtime, time.time())
        except OSError:
            return time.time()
    return time.time()


def total_bytes(sources: Iterable[LogSource]) -> int:
    """What files take on disk together; 0 where one of them is no file."""
    total = 0
    for source in sources:
        try:
            total += Path(cast(str, source)).stat().st_size
        except (OSError, TypeError):
            return 0
    return total


def chunks_of(
    source: LogSource, tally: SourceTally, *, digest: bool = False, read: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """The bytes of one source in chunks, unpacked where they are gzip; `tally` is told the size, with `digest` the
    SHA-256 of the bytes as they lie in the file, and of a cut archive. `read` is called with bytes taken from the file.

    Raises SourceError for a file that cannot be read and for an archive that unpacks to more than logs do.
    """
    hashed = hashlib.sha256() if digest else None

    def raw() -> Generator[bytes, None, None]:
        try:
            with _opened(source) as stream:
                while chunk := _some(stream):
                    tally.size_bytes += len(chunk)
                    if hashed is not None:
                        hashed.update(chunk)
                    if read is not None:
                        read(len(chunk))
                    yield chunk
        except OSError as problem:
            raise SourceError(
                f"{source_name(source)}: {problem.strerror or problem}", source=source_name(source)
            ) from None
        if hashed is not None:
            tally.sha256 = hashed.hexdigest()

    pieces = raw()
    first = next(pieces, b"")
    if first[:2] == b"\x1f\x8b":
        yield from _unpacked(first, pieces, tally)
    elif first[:4] == b"\x28\xb5\x2f\xfd":
        pieces.close()
        raise SourceError(
            f"{tally.name}: zstd is not read; unpack it (zstd -dc {tally.name} | vramledger log -)",
            source=tally.name,
        )
    elif first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        yield from _from_utf16(first, pieces)
    elif first:
        yield first
        yield from pieces


def _some(stream: BinaryIO) -> bytes:
    """What a stream has, without waiting for a whole chunk where it can tell."""
    take = getattr(stream, "read1", None) or stream.read
    found = take(CHUNK_BYTES)
    return found if isinstance(found, bytes) else b""


def _opened(source: LogSource) -> AbstractContextManager[BinaryIO]:
    if not isinstance(source, str | Path):
        return nullcontext(source)
    if str(source) == "-":
        return nullcontext(sys.stdin.buffer)
    path = Path(source)
    if path.is_dir():
        raise SourceError(f"{path}: is a directory; name the log files in it", source=str(path))
    return path.open("rb", buffering=0)


def _unpacked(first: bytes, rest: Iterator[bytes], tally: SourceTally) -> Iterator[bytes]:
    """Members of a gzip file one after another."""
    unpacker = zlib.decompressobj(wbits=31)
    made = 0
    within = False
    data: bytes | None = first
    try:
        while data is not None:
            while data:
                within = True
                out = unpacker.decompress(data, CHUNK_BYTES)
                made += len(out)
                if made > FREE_EXPANSION_BYTES and made > MOST_EXPANSION * tally.size_bytes:
                    raise SourceError(
                        f"{tally.name}: unpacks to more than {MOST_EXPANSION} times its size, which no log does",
                        source=tally.name,
                    )
                if out:
                    yield out
                data = unpacker.unconsumed_tail
                if unpacker.eof:
                    data = unpacker.unused_data.lstrip(b"\0")
                    unpacker = zlib.decompressobj(wbits=31)
                    within = False
            data = next(rest, None)
    except zlib.error as problem:
        tally.cut = (
            f"the archive is damaged after {made:,} unpacked bytes ({problem}); what follows was not read"
        )
        deque(rest, maxlen=0)
        return
    if within:
        tally.cut = f"the archive stops short after {made:,} unpacked bytes"


def _from_utf16(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """What a shell of Windows writes when it redirects output."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for chunk in rest:
        yield decoder.decode(chunk).encode("utf-8", "replace")
