"""A series of samples taken in the background while an engine is started and asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from vramledger.ledger import Phase
from vramledger.telemetry.marks import Mark, ReadMarks
from vramledger.telemetry.series import Sampler, Source
from vramledger.telemetry.series_file import SeriesWriter


class Watch:
    """Samples `sources` into `path` from entering to leaving; `mark` says what the instance is at from now on."""

    def __init__(
        self, path: Path, sources: Sequence[Source], *, interval_s: float, marks: Sequence[ReadMarks] = ()
    ) -> None:
        self._path = path
        self._sources = sources
        self._interval_s = interval_s
        self._read_marks = tuple(marks)
        self._marks: list[Mark] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def mark(self, label: str, phase: Phase | None = None) -> None:
        with self._lock:
            self._marks.append(Mark(at_s=time.time(), label=label, phase=phase))

    def _fresh(self) -> list[Mark]:
        with self._lock:
            found, self._marks = self._marks, []
        return found

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _run(self) -> None:
        sampler = Sampler(
            self._sources,
            interval_s=self._interval_s,
            clock=time.time,
            sleep=self._pause,
            goes_on=lambda _: not self._stop.is_set(),
            marks=[*self._read_marks, self._fresh],
        )
        with SeriesWriter(self._path) as writer:
            for tick in sampler:
                writer.write(tick.samples)
            writer.write([sampler.end()])
        self.notes = sampler.notes
