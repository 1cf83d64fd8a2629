"""A series of the process that one is in: torch's allocator by pool, host memory, and marks at which both are read at once.

    from vramledger.ledger import Phase
    from vramledger.telemetry.own_process import sampling

    with sampling("start.parquet") as series:
        model = load()
        series.mark("after load", Phase.WARMUP)
        for size in (8, 4, 2, 1):
            capture(size)
            series.mark(f"after graph {size}", Phase.WARMUP)
        series.mark("steady")

`vramledger measure --series start.parquet` then tells what each captured size took and whether they share a pool.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vramledger.errors import SourceError
from vramledger.ledger import Phase
from vramledger.telemetry.marks import BEFORE_LOAD, END, LONGEST_LABEL, Mark
from vramledger.telemetry.probes.host import HostProbe
from vramledger.telemetry.probes.torch_allocator import TorchProbe
from vramledger.telemetry.series import Rounds, Source
from vramledger.telemetry.series_file import SeriesWriter

SOURCE = "series"


class OwnSeries:
    """The series that is being taken. `notes` say what could not be asked."""

    def __init__(self, writer: SeriesWriter, sources: Sequence[Source], clock: Callable[[], float]) -> None:
        self._writer = writer
        self._rounds = Rounds(sources)
        self._clock = clock
        self._lock = threading.Lock()
        self._at = Mark(at_s=clock(), label=BEFORE_LOAD)
        writer.write([self._at.sample(SOURCE)])
        self.notes: list[str] = []

    def mark(self, label: str, phase: Phase | None = None) -> None:
        """From now on it is at `label`; what all sources say is read on either side of the mark."""
        with self._lock:
            self._take()
            self._at = Mark(at_s=self._clock(), label=label[:LONGEST_LABEL], phase=phase)
            self._writer.write([self._at.sample(SOURCE)])
            if label != END:
                self._take()

    def take(self) -> None:
        """Read all sources now."""
        with self._lock:
            self._take()

    def _take(self) -> None:
        self._writer.write(self._rounds(self._clock(), self._at.phase))


@contextmanager
def sampling(
    path: str | os.PathLike[str],
    *,
    interval_s: float = 0.1,
    sources: Sequence[Source] | None = None,
    clock: Callable[[], float] = time.time,
) -> Iterator[OwnSeries]:
    """While it is open, this process is sampled into `path` (.parquet or .jsonl) by a thread, and at each mark.

    Without `sources`, torch's allocator (of the current device) and host memory, as far as they are here. Raises
    SourceError where there is neither, OutputError where the file cannot be written, FlagError for another kind of file.
    """
    notes: list[str] = []
    asked = list(_own_sources(notes)) if sources is None else list(sources)
    if not asked:
        raise SourceError(f"there is nothing to sample here: {'; '.join(notes)}")
    ended = threading.Event()
    with SeriesWriter(Path(path)) as writer:
        series = OwnSeries(writer, asked, clock)
        series.notes += notes

        def run() -> None:
            while not ended.wait(interval_s):
                series.take()

        thread = threading.Thread(target=run, name="vramledger sampling", daemon=True)
        thread.start()
        try:
            yield series
        finally:
            ended.set()
            thread.join()
            series.mark(END)


def _own_sources(notes: list[str]) -> Iterator[Source]:
    for make in (TorchProbe, lambda: HostProbe(os.getpid())):
        try:
            yield make()
        except SourceError as problem:
            notes.append(problem.message)
