"""What the log of one instance measured, with where that was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from vramledger.engines import find_log, log_engines
from vramledger.errors import InputError
from vramledger.measurement import Measurement, MeasurementSource
from vramledger.observation import Event, Observation
from vramledger.telemetry.log_files import LogSource
from vramledger.telemetry.log_reading import read_log
from vramledger.telemetry.log_tally import LogTally, SourceTally
from vramledger.units import counted

SOURCE_KIND = "log"
# Events that come again and again while an instance serves.
REPEATED = frozenset({Event.STEP, Event.ADMITTED, Event.FINISHED, Event.PREEMPTION})


def log_measurement(
    source: LogSource | Sequence[LogSource],
    *,
    engine: str | None = None,
    now_s: float | None = None,
    read: Callable[[int], None] | None = None,
) -> Measurement:
    """One instance as its log states it: a file, a stream, "-", or the files of a rotated log in their order.

    Of several start-ups the last counts; of several engines in one log the one that says most. The sources carry size,
    SHA-256 (of the files as they lie there) and the times they span; what could not be read is in the notes.

    Raises InputError where the log shows no engine that is known here, FlagError for an `engine` without a known log,
    SourceError for what cannot be read.
    """
    tally = LogTally()
    by_engine: dict[str, _Said] = {}
    for one in read_log(source, engine=engine, now_s=now_s, digest=True, read=read, tally=tally):
        by_engine.setdefault(str(one.engine), _Said()).take(one)
    name = _spoken(by_engine, tally)
    log = find_log(name)
    if log is None:
        raise InputError(f"how {name} words its log is not known here")
    measured = log.measured(by_engine[name].kept() if name in by_engine else ())
    return replace(
        measured,
        engine=measured.engine or name,
        sources=(
            *map(measurement_source, tally.sources),
            *(
                source
                for source in measured.sources
                if source.name not in {one.name for one in tally.sources}
            ),
        ),
        notes=(*measured.notes, *tally.notes(), *_others(by_engine, name)),
    )


def measurement_source(tally: SourceTally) -> MeasurementSource:
    """A source that was read, as a measurement names it."""
    return MeasurementSource(
        name=tally.name,
        kind=SOURCE_KIND,
        sha256=tally.sha256,
        size_bytes=tally.size_bytes,
        from_s=tally.from_s,
        until_s=tally.until_s,
    )


class _Said:
    """What one engine said; of what repeats itself only the first and the last of each run are kept."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[Observation] = []
        self._last: Observation | None = None

    def take(self, observation: Observation) -> None:
        self.count += 1
        repeats = observation.event in REPEATED
        if repeats and self._kept and self._kept[-1].event in REPEATED:
            self._last = observation
            return
        self.kept().append(observation)

    def kept(self) -> list[Observation]:
        if self._last is not None:
            self._kept.append(self._last)
            self._last = None
        return self._kept


def _spoken(by_engine: Mapping[str, _Said], tally: LogTally) -> str:
    """The engine whose log this is."""
    if by_engine:
        return max(by_engine, key=lambda name: by_engine[name].count)
    if tally.engines:
        return tally.engines[0]
    names = ", ".join(source.name for source in tally.sources)
    raise InputError(
        f"{names}: no line tells which engine wrote it; known are {', '.join(log_engines()) or 'none'}; "
        "name it with --engine",
        source=names,
    )


def _others(by_engine: Mapping[str, _Said], name: str) -> list[str]:
    return [
        f"{counted(found.count, 'line')} of {other} in the same log are left out"
        for other, found in by_engine.items()
        if other != name
    ]
