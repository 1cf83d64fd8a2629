"""A trace's file, compressed or not, opened as often as needed; what is read is bounded."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vramledger.errors import InputError, SourceError
from vramledger.models.sources.bounded_file import path_of, regular_file_bytes, shown

CHUNK_BYTES = 2**22
LONGEST_LINE_BYTES = 2**26
LARGEST_BYTES = 2**37
"""Of content, after decompression."""


class Source:
    """A regular file. `name` is how messages call it."""

    def __init__(self, path: str | Path) -> None:
        self.path = path_of(str(path))
        self.name = shown(self.path)
        regular_file_bytes(self.path)
        self._stamp = self._looks()
        with self._raw() as file:
            self.is_gzip = file.read(2) == b"\x1f\x8b"

    def open(self) -> BinaryIO:
        """The content from its start. Raises InputError where the file is no longer what was opened first."""
        if self._looks() != self._stamp:
            raise InputError(f"{self.name} changed while it was read", file=self.name)
        return io.BufferedReader(_Content(self._raw(), self), CHUNK_BYTES)

    def head(self, size: int) -> bytes:
        """The first `size` bytes of content, fewer where there are no more."""
        with self.open() as file:
            return file.read(size)

    def first_line(self) -> bytes:
        """The first line that is not blank, without its end; empty where there is none."""
        for _, lines in self.line_blocks():
            for text in lines:
                if text.strip():
                    return text
        return b""

    def line_blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """Lines without their ends, many at a time, with the number of the first (from 1).

        Raises InputError for a line of more than LONGEST_LINE_BYTES.
        """
        number, rest = 1, b""
        with self.open() as file:
            while chunk := file.read(CHUNK_BYTES):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                if lines:
                    yield number, lines
                    number += len(lines)
                if len(rest) > LONGEST_LINE_BYTES:
                    raise InputError(
                        f"{self.name}: line {number} has more than {LONGEST_LINE_BYTES:,} bytes",
                        file=self.name,
                    )
        if rest:
            yield number, [rest]

    def _raw(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as problem:
            raise self.unreadable(problem) from None

    def _looks(self) -> tuple[int, int, int]:
        try:
            status = self.path.stat()
        except OSError as problem:
            raise self.unreadable(problem) from None
        return status.st_size, status.st_mtime_ns, status.st_ino

    def unreadable(self, problem: OSError) -> SourceError:
        """The error for a file that the system does not give."""
        return SourceError(f"{self.name} cannot be read: {problem.strerror or problem}", file=self.name)


class _Content(io.RawIOBase):
    """What a file holds, decompressed, with errors that name it."""

    def __init__(self, raw: BinaryIO, source: Source) -> None:
        super().__init__()
        self._raw = raw
        self._source = source
        self._file: BinaryIO = gzip.GzipFile(fileobj=raw) if source.is_gzip else raw  # type: ignore[assignment]
        self._left = LARGEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        name = self._source.name
        try:
            data = self._file.read(min(len(buffer), CHUNK_BYTES))
        except EOFError:
            raise InputError(f"{name} is cut: its gzip stream has no end", file=name) from None
        except (gzip.BadGzipFile, zlib.error):
            raise InputError(
                f"{name} is damaged: its gzip stream cannot be decompressed", file=name
            ) from None
        except OSError as problem:
            raise self._source.unreadable(problem) from None
        self._left -= len(data)
        if self._left < 0:
            raise InputError(f"{name} holds more than {LARGEST_BYTES:,} bytes", file=name)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._raw.close()
        super().close()
