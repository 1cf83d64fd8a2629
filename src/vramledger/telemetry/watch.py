"""A series of samples taken in the background while an engine is started and asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol

from vramledger.errors import VramledgerError
from vramledger.ledger import Phase
from vramledger.observation import Sample
from vramledger.telemetry.marks import BEFORE_LOAD, MARK, Mark, ReadMarks
from vramledger.telemetry.series import SHORTEST_INTERVAL_S, Sampler, Source, Tick
from vramledger.telemetry.series_file import SeriesWriter

MOST_LABELS = 256


class Rows(Protocol):
    """Where rows go; a context."""

    def write(self, samples: Iterable[Sample]) -> None: ...

    def close(self) -> None: ...


class Watch:
    """Samples `sources` into `rows` (a path: a series of its own) from entering to leaving; `mark` says what the instance is at
    from now on. `rounds_at` has, of the last 256 labels, the first round since each was reached last; another may have been reached by then. `notes` say what could not be asked, and why the series ends
    before its time where it cannot be written.
    """

    def __init__(
        self,
        rows: Path | Rows,
        sources: Sequence[Source],
        *,
        interval_s: float,
        marks: Sequence[ReadMarks] = (),
        label: str = BEFORE_LOAD,
    ) -> None:
        self._rows = rows
        self._marks: list[Mark] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._sampler = Sampler(
            sources,
            interval_s=interval_s,
            clock=time.time,
            sleep=self._pause,
            goes_on=lambda _: not self._stop.is_set(),
            marks=[*marks, self._fresh],
            label=label,
        )
        self._problem: str | None = None
        self.rounds_at: dict[str, Tick] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._sampler.notes, *(() if self._problem is None else (self._problem,)))

    def mark(self, label: str, phase: Phase | None = None) -> None:
        with self._lock:
            self._marks.append(Mark(at_s=time.time(), label=label, phase=phase))

    @contextmanager
    def paced(self, interval_s: float) -> Iterator[None]:
        """While it is open, rounds are `interval_s` apart, beginning with the next but one."""
        before, self._sampler.interval_s = self._sampler.interval_s, max(interval_s, SHORTEST_INTERVAL_S)
        try:
            yield
        finally:
            self._sampler.interval_s = before

    def _fresh(self) -> list[Mark]:
        with self._lock:
            found, self._marks = self._marks, []
        return found

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _run(self) -> None:
        try:
            rows = SeriesWriter(self._rows) if isinstance(self._rows, Path) else self._rows
            try:
                for tick in self._sampler:
                    rows.write(tick.samples)
                    self._keep(tick)
                rows.write([self._sampler.end()])
            finally:
                rows.close()
        except VramledgerError as problem:
            self._problem = f"the series ends here: {problem.message}"

    def _keep(self, tick: Tick) -> None:
        for sample in tick.samples:
            if sample.name == MARK:
                self.rounds_at.pop(sample.label, None)
                self.rounds_at[sample.label] = tick
        while len(self.rounds_at) > MOST_LABELS:
            del self.rounds_at[next(iter(self.rounds_at))]
