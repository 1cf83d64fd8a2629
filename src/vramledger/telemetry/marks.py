"""What an instance is at, marked in a time series: before load, loading, loaded, each warm-up step, each captured size,
serving.

A mark is a Sample named "mark_count": from its time on, samples are of its phase and label until the next mark.
Marks come from the engine's log while it is followed (`mark_of`), or from whoever starts the engine (`marking`,
`write_mark`), by way of a small file beside the series.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from vramledger.errors import SourceError
from vramledger.ledger import Phase
from vramledger.models.sources.bounded_file import shown
from vramledger.observation import Event, Observation, Sample

MARK = "mark_count"
BEFORE_LOAD, LOADING, LOADED, SERVING, END = "before load", "load", "after load", "steady", "end"
AFTER, GRAPH, WARMUP = "after ", "graph ", "warm-up "
LONGEST_LABEL = 120
_LONGEST_LINE_BYTES = 4_096


class Mark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From `at_s` (Unix time) on the instance is at `label`, in a phase of the ledger where it is in one."""

    at_s: float
    label: str
    phase: Phase | None = None

    def sample(self, source: str) -> Sample:
        """The mark as a row of the series."""
        return Sample(at_s=self.at_s, source=source, name=MARK, value=1, phase=self.phase, label=self.label)


def mark_of(observation: Observation, at_s: float) -> tuple[Mark, ...]:
    """The marks of what an engine's log said at `at_s`.

    Lines about a step are printed when it is done: their marks begin the span "after" it.
    """
    values = observation.values
    match observation.event:
        case Event.VERSION | Event.SETTINGS:
            return (Mark(at_s=at_s, label=BEFORE_LOAD),)
        case Event.LOAD_BEGIN:
            return (Mark(at_s=at_s, label=LOADING, phase=Phase.LOAD),)
        case Event.WEIGHTS:
            return (Mark(at_s=at_s, label=LOADED, phase=Phase.WARMUP),)
        case Event.PROFILE:
            return (Mark(at_s=at_s, label=f"{AFTER}{WARMUP}profile", phase=Phase.WARMUP),)
        case Event.WARMUP:
            step = " ".join(str(values[name]) for name in ("step", "shape") if name in values)
            return (
                Mark(at_s=at_s, label=f"{AFTER}{WARMUP}{step}".strip()[:LONGEST_LABEL], phase=Phase.WARMUP),
            )
        case Event.KV_POOL:
            return (Mark(at_s=at_s, label=f"{AFTER}KV pool", phase=Phase.WARMUP),)
        case Event.GRAPH_SHAPE:
            shape = str(values.get("shape", "of unknown size"))
            return (Mark(at_s=at_s, label=f"{AFTER}{GRAPH}{shape}"[:LONGEST_LABEL], phase=Phase.WARMUP),)
        case Event.GRAPHS:
            return (Mark(at_s=at_s, label=f"{AFTER}all graphs", phase=Phase.WARMUP),)
        case Event.READY:
            return (Mark(at_s=at_s, label=SERVING),)
    return ()


def marks_file(series: Path) -> Path:
    """Where marks for a series that is being taken are left."""
    return series.with_name(f"{series.name}.marks")


def write_mark(series: Path, label: str, phase: Phase | None = None, *, at_s: float | None = None) -> Mark:
    """Leave a mark for whoever samples into `series`. Raises SourceError where it cannot be written."""
    mark = Mark(at_s=time.time() if at_s is None else at_s, label=label[:LONGEST_LABEL], phase=phase)
    path = marks_file(series)
    try:
        # One write of one short line to a file opened for appending is not torn by another's.
        with path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(mark) + b"\n")
    except OSError as problem:
        raise SourceError(f"{shown(path)} cannot be written: {problem.strerror}", file=shown(path)) from None
    return mark


@contextmanager
def marking(series: str | os.PathLike[str], label: str, phase: Phase | None = None) -> Iterator[None]:
    """While it is open, what is sampled into `series` is at `label`; afterwards at "after LABEL".

    with marking("start.parquet", "graph 8", Phase.WARMUP):
        capture(batch_size=8)
    """
    path = Path(series)
    write_mark(path, label, phase)
    try:
        yield
    finally:
        write_mark(path, f"after {label}", phase)


class MarksReader:
    """New marks of a file that may not be there yet, each once, from `since_s` on. Lines that are no mark are passed over."""

    def __init__(self, path: Path, since_s: float) -> None:
        self._path = path
        self._since_s = since_s
        self._offset = 0

    def __call__(self) -> list[Mark]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(2**20)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        found = []
        for line in data[:whole].splitlines():
            if len(line) > _LONGEST_LINE_BYTES:
                continue
            try:
                mark = msgspec.json.decode(line, type=Mark)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if mark.at_s >= self._since_s:
                found.append(mark)
        return found


ReadMarks = Callable[[], list[Mark]]
