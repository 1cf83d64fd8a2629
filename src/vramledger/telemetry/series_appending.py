"""A series that goes on where it ended: JSON lines appended to the file itself, so that one that is killed keeps its rows."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import msgspec

from vramledger.errors import SourceError
from vramledger.models.sources.bounded_file import shown
from vramledger.observation import Sample
from vramledger.telemetry.series_file import LONGEST_LINE_BYTES, is_possible, looks_like_series
from vramledger.whole_file import unwritten


class SeriesAppender:
    """Appends rows to `path`; use as a context. A last line that was cut is taken away first.

    Raises InputError for a file that is no series, SourceError where it cannot be read, OutputError where it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._encode = msgspec.json.Encoder().encode
        self._lock = Lock()
        self._at_s: list[float] = []
        self._offsets: list[int] = []
        try:
            self._file: BinaryIO = path.open("a+b", buffering=0)
        except (OSError, ValueError) as problem:
            raise unwritten(path, problem) from None
        try:
            self._end = self._mended()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> SeriesAppender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, samples: Iterable[Sample]) -> None:
        """Append the rows of one round, which are of one time or follow one another."""
        rows = list(samples)
        if not rows:
            return
        data = b"".join(self._encode(row) + b"\n" for row in rows)
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as problem:
            raise unwritten(self.path, problem) from None
        with self._lock:
            self._at_s.append(max(self._at_s[-1] if self._at_s else 0.0, *(row.at_s for row in rows)))
            self._offsets.append(self._end)
            self._end += len(data)

    def between(self, from_s: float, until_s: float) -> Iterator[Sample]:
        """Rows of these times, both ends among them, also of runs before this one."""
        with self._lock:
            first = bisect_left(self._at_s, from_s)
            # Of what an earlier run wrote the times are not known here: it is read through.
            start = self._offsets[min(first, len(self._offsets) - 1)] if first else 0
            end = self._end
        decoder = msgspec.json.Decoder(Sample)
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                while file.tell() < end and (line := file.readline(LONGEST_LINE_BYTES)):
                    try:
                        sample = decoder.decode(line)
                    except (msgspec.MsgspecError, UnicodeDecodeError):
                        continue
                    if from_s <= sample.at_s <= until_s and is_possible(sample):
                        yield sample
        except OSError as problem:
            raise SourceError(
                f"{shown(self.path)} cannot be read: {problem.strerror}", file=shown(self.path)
            ) from None

    def close(self) -> None:
        """Everything is on disk; once."""
        if self._file.closed:
            return
        try:
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as problem:
            raise unwritten(self.path, problem) from None

    def _mended(self) -> int:
        """The file's length without a last line that was cut."""
        file, where = self._file, shown(self.path)
        try:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(LONGEST_LINE_BYTES)
            if head and b"\n" in head and not looks_like_series(head):
                raise SourceError(f"{where} is there and is no series of samples", file=where)
            tail_at = max(0, size - LONGEST_LINE_BYTES)
            file.seek(tail_at)
            whole = tail_at + file.read(LONGEST_LINE_BYTES).rfind(b"\n") + 1
            if whole < size:
                file.truncate(whole)
            file.seek(0, os.SEEK_END)
        except OSError as problem:
            raise SourceError(f"{where} cannot be read: {problem.strerror}", file=where) from None
        return whole
