"""What is watched while an experiment runs: devices, processes, engines and a gateway, in one series that goes on where it ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from vramledger.errors import SourceError
from vramledger.experiment.instance import listener_of
from vramledger.experiment.result import Snapshot
from vramledger.ledger import Phase
from vramledger.observation import Sample
from vramledger.telemetry.log_marks import LogMarks
from vramledger.telemetry.marks import AFTER, BEFORE_LOAD, LOADED, MARK, Mark
from vramledger.telemetry.probes.engine import MetricsProbe
from vramledger.telemetry.probes.gateway import GatewayProbe
from vramledger.telemetry.probes.host import HostProbe
from vramledger.telemetry.probes.nvml import Nvml
from vramledger.telemetry.series import Tick
from vramledger.telemetry.series_appending import SeriesAppender
from vramledger.telemetry.source_group import SourceGroup
from vramledger.telemetry.watch import Watch

PROBE_LIMIT_S = 5.0
MOST_OF_A_SNAPSHOT = 2000


class Watching:
    """Samples into `series` (JSON lines, appended) from entering to leaving; what is asked may change meanwhile.

    The devices of this machine are asked from the beginning, where there is a driver. `label` is what is under way until the first mark.
    """

    def __init__(self, series: Path, *, interval_s: float, label: str = BEFORE_LOAD) -> None:
        self._series = series
        self._interval_s = interval_s
        self._label = label
        self._stack = ExitStack()
        self._group = SourceGroup()
        self._logs: list[LogMarks] = []
        self._rows: SeriesAppender | None = None
        self._watch: Watch | None = None
        self._absent: list[str] = []
        self._beside: dict[str, str] = {}

    def __enter__(self) -> Watching:
        with ExitStack() as stack:
            self._rows = SeriesAppender(self._series)
            stack.callback(self._rows.close)
            try:
                self._group.add(stack.enter_context(Nvml()))
            except SourceError as problem:
                self._absent.append(problem.message)
            self._watch = Watch(
                self._rows,
                [self._group],
                interval_s=self._interval_s,
                marks=[self._log_marks],
                label=self._label,
            )
            stack.enter_context(self._watch)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be asked, and why."""
        watched = self._watch.notes if self._watch is not None else ()
        # The group tells of its sources one by one; that none of them answered says no more.
        others = [note for note in watched if not note.startswith(f"{self._group.name} ")]
        return (*self._absent, *self._group.notes, *others)

    def process(self, pid: int) -> str:
        """Watch a process and all that it starts; the name by which it is left again. Where its memory cannot be seen, a note says so."""
        try:
            probe = HostProbe(pid)
        except SourceError as problem:
            self._absent.append(problem.message)
            return ""
        self._group.add(probe)
        return probe.name

    def engine(self, url: str, *, engine: str | None = None, token: str | None = None) -> str:
        """Watch an engine's metrics."""
        probe = MetricsProbe(url, engine=engine, token=token, limit_s=PROBE_LIMIT_S)
        self._group.add(probe)
        return probe.name

    def gateway(self, url: str, *, token: str | None = None) -> str:
        """Watch a gateway's books, and its memory where it runs on this machine."""
        pid = listener_of(url)
        if pid is not None:
            self._beside[f"gateway:{url}"] = self.process(pid)
        probe = GatewayProbe(url, token=token, limit_s=PROBE_LIMIT_S)
        self._group.add(probe)
        return probe.name

    def follow(self, log: Path, *, engine: str | None = None) -> None:
        """Marks from an engine's log, as long as the watch lasts."""
        self._logs.append(self._stack.enter_context(LogMarks(log, engine=engine)))

    def leave(self, *names: str) -> None:
        """Watch these no more."""
        for name in names:
            self._group.remove(name)
            self._group.remove(self._beside.pop(name, ""))

    def mark(self, label: str, phase: Phase | None = None) -> None:
        """From now on the instance is at `label`."""
        assert self._watch is not None, "not entered"
        self._watch.mark(label, phase)

    @contextmanager
    def paced(self, interval_s: float) -> Iterator[None]:
        """While it is open, samples are taken at this interval."""
        assert self._watch is not None, "not entered"
        with self._watch.paced(interval_s):
            yield

    def samples(self) -> tuple[Sample, ...]:
        """What all say now; nothing of those that cannot tell."""
        try:
            return tuple(self._group.read(time.time()))
        except SourceError:
            return ()

    def snapshot(self, label: str) -> Snapshot:
        """Memory and the pool now."""
        return Snapshot(label=label, at_s=time.time(), samples=_kept(self.samples()))

    def loaded(self, since_s: float) -> Snapshot | None:
        """Memory at the first round, after `since_s`, at which a log had said that the weights were there, be it only by going on to what
        follows them; None where none did. Where more was there by then ("after KV pool"), the label says so."""
        rounds = self._watch.rounds_at.values() if self._watch is not None else ()
        tick = next((one for one in rounds if one.at_s >= since_s and _begins_warm_up(one)), None)
        if tick is None:
            return None
        label = LOADED if tick.label == LOADED else f"{LOADED} and {tick.label.removeprefix(AFTER)}"
        return Snapshot(label=label, at_s=tick.at_s, samples=_kept(tick.samples))

    def between(self, from_s: float, until_s: float) -> Iterator[Sample]:
        """What was sampled in a stretch of time, marks among it."""
        assert self._rows is not None, "not entered"
        return self._rows.between(from_s, until_s)

    def _log_marks(self) -> list[Mark]:
        return [mark for log in tuple(self._logs) for mark in log()]


def _kept(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Bytes, and what is held and runs: no counters of all time."""
    found = [
        sample
        for sample in samples
        if not sample.name.startswith("total_")
        and sample.name.endswith(("_bytes", "_tokens", "_blocks", "_requests", "_ratio", "_kill_count"))
    ]
    return tuple(found[:MOST_OF_A_SNAPSHOT])


def _begins_warm_up(tick: Tick) -> bool:
    return any(sample.name == MARK and sample.phase is Phase.WARMUP for sample in tick.samples)
