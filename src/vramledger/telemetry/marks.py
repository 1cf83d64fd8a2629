"""What an instance is at, marked in a time series: before load, loading, loaded, each warm-up step, each captured size,
serving.

A mark is a Sample named "mark_count": from its time on, samples are of its phase and label until the next mark.
Marks come from the engine's log while it is followed (`Marker`), or from whoever starts the engine (`marking`,
`write_mark`), by way of a small file beside the series.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from vramledger.ledger import Phase
from vramledger.observation import Event, Observation, Sample
from vramledger.whole_file import unwritten

MARK = "mark_count"
BEFORE_LOAD, LOADING, LOADED, SERVING, END = "before load", "load", "after load", "steady", "end"
AFTER, GRAPH, WARMUP = "after ", "graph ", "warm-up "
LONGEST_LABEL = 120
_LONGEST_LINE_BYTES = 4_096


class _Stage(IntEnum):
    BEFORE = 0
    LOADING = 1
    WARMUP = 2
    SERVING = 3
    RESTARTED = 4


class Mark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From `at_s` (Unix time) on the instance is at `label`, in a phase of the ledger where it is in one."""

    at_s: float
    label: str
    phase: Phase | None = None

    def sample(self, source: str) -> Sample:
        """The mark as a row of the series."""
        return Sample(at_s=self.at_s, source=source, name=MARK, value=1, phase=self.phase, label=self.label)


class Marker:
    """What one engine's log says that the instance is at, observation by observation.

    An instance goes on from before load over loading and warm-up to serving, whatever the log repeats meanwhile; a version
    that is printed while it serves is a new start. Of several ranks the first speaks. Lines about a step are printed when
    it is done: their marks begin the span "after" it.
    """

    def __init__(self) -> None:
        self._stage = _Stage.BEFORE

    def __call__(self, observation: Observation, at_s: float) -> Mark | None:
        """The mark that begins with what was said at `at_s`, None where nothing does."""
        if observation.rank not in (None, 0):
            return None
        found = self._found(observation)
        if found is None or found[0] < self._stage:
            return None
        self._stage, label, phase = found
        if self._stage is _Stage.RESTARTED:
            self._stage = _Stage.BEFORE
        return Mark(at_s=at_s, label=label[:LONGEST_LABEL], phase=phase)

    def _found(self, observation: Observation) -> tuple[_Stage, str, Phase | None] | None:
        values = observation.values
        match observation.event:
            case Event.VERSION if self._stage is _Stage.SERVING:
                return _Stage.RESTARTED, BEFORE_LOAD, None
            case Event.LOAD_BEGIN:
                return _Stage.LOADING, LOADING, Phase.LOAD
            case Event.MODEL if (
                "tensors_count" in values
            ):  # a loader that names its file's tensors has opened it
                return _Stage.LOADING, LOADING, Phase.LOAD
            case Event.BUFFER if values.get("buffer") == "model" and self._stage <= _Stage.LOADING:
                return _Stage.WARMUP, LOADED, Phase.WARMUP
            case Event.WEIGHTS if self._stage <= _Stage.LOADING:
                return _Stage.WARMUP, LOADED, Phase.WARMUP
            case Event.PROFILE:
                return _Stage.WARMUP, f"{AFTER}{WARMUP}profile", Phase.WARMUP
            case Event.WARMUP:
                step = " ".join(str(values[name]) for name in ("step", "shape") if name in values)
                return _Stage.WARMUP, f"{AFTER}{WARMUP}{step}".strip(), Phase.WARMUP
            case Event.KV_POOL:
                return _Stage.WARMUP, f"{AFTER}KV pool", Phase.WARMUP
            case Event.GRAPH_SHAPE:
                return _Stage.WARMUP, f"{AFTER}{GRAPH}{values.get('shape', 'of unknown size')}", Phase.WARMUP
            case Event.GRAPHS:
                return _Stage.WARMUP, f"{AFTER}all graphs", Phase.WARMUP
            case Event.READY:
                return _Stage.SERVING, SERVING, None
        return None


def marks_file(series: Path) -> Path:
    """Where marks for a series that is being taken are left."""
    return series.with_name(f"{series.name}.marks")


def write_mark(series: Path, label: str, phase: Phase | None = None, *, at_s: float | None = None) -> Mark:
    """Leave a mark for whoever samples into `series`. Raises OutputError where it cannot be written."""
    mark = Mark(at_s=time.time() if at_s is None else at_s, label=label[:LONGEST_LABEL], phase=phase)
    path = marks_file(series)
    try:
        # One write of one short line to a file opened for appending is not torn by another's.
        with path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(mark) + b"\n")
    except OSError as problem:
        raise unwritten(path, problem) from None
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
