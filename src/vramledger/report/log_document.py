"""What a log says, published: what `vramledger log --json` writes, and one line of it for `--follow --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SCHEMA_VERSION, ByteInterval, SchemaVersion, byte_interval
from vramledger.engines import find_log
from vramledger.ledger import ByteRange
from vramledger.observation import Event, Observation, Value
from vramledger.telemetry.log_measurement import REPEATED
from vramledger.telemetry.log_tally import LogTally

MOST_LISTED = 5_000
MOST_STATED = 200
_STATING = frozenset({Event.VERSION, Event.SETTINGS, Event.MODEL, Event.KV_POOL})
LogPhase = Literal["start", "load", "warm-up", "service", "asleep"]
_LOAD = frozenset({Event.LOAD_BEGIN, Event.WEIGHTS})
_WARMUP = frozenset(
    {Event.PROFILE, Event.KV_BUDGET, Event.KV_POOL, Event.GRAPHS, Event.GRAPH_SHAPE, Event.WARMUP}
)


class ObservationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said. Names of values end in their unit; a printed size is as wide as its rounding."""

    event: Annotated[str, Meta(description="What kind of thing was said; new kinds may come.")]
    phase: LogPhase
    engine: str | None
    at_s: Annotated[float | None, Meta(description="Unix time; None where none was printed.")]
    rank: int | None
    process: str | None
    container: str | None
    source: str
    line: int
    offset_bytes: Annotated[int, Meta(description="Where the line begins in the unpacked source.")]
    values: dict[str, int | float | str | bool | ByteInterval]
    text: Annotated[str, Meta(description="The line without prefixes.")]


class SeriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the lines that an engine prints while it serves."""

    name: str
    count: int
    lowest: float
    highest: float
    first: float
    last: float
    highest_at_s: float | None


class RepeatedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one kind that come again and again, by who prints them."""

    event: Annotated[str, Meta(description="What kind of thing was said; new kinds may come.")]
    engine: str | None
    printer: str | None
    count: int
    from_s: float | None
    until_s: float | None
    series: tuple[SeriesDocument, ...]


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A file or stream that was read; `size_bytes` as it lies there, an archive's packed."""

    name: str
    size_bytes: int
    sha256: str | None
    lines: int
    from_s: float | None
    until_s: float | None


class LogDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A log as a timeline: what was said once, one by one; what is said again and again, summed up."""

    schema_version: SchemaVersion
    kind: Literal["log"]
    sources: tuple[SourceDocument, ...]
    engines: Annotated[tuple[str, ...], Meta(description="Engines whose signs the log holds.")]
    settings: Annotated[
        dict[str, int | float | str | bool],
        Meta(description="The engine's own names and values, as it printed them."),
    ]
    observations: tuple[ObservationDocument, ...]
    repeated: tuple[RepeatedDocument, ...]
    failures: Annotated[
        dict[str, int], Meta(description="Messages of the failure catalogue by kind, and how often.")
    ]
    notes: Annotated[tuple[str, ...], Meta(description="What was not read or is not listed.")]


class Phases:
    """Which phase of an instance's life each line belongs to, told from what was said before it."""

    def __init__(self) -> None:
        self._phase: LogPhase = "start"

    def of(self, event: Event) -> LogPhase:
        """The phase of the next observation."""
        serving = self._phase in ("service", "asleep")
        if event is Event.VERSION and serving:
            self._phase = "start"
        elif event in _LOAD and not (event is Event.WEIGHTS and self._phase == "warm-up"):
            self._phase = "load"
        elif event in _WARMUP and not serving:
            self._phase = "warm-up"
        elif event is Event.SLEEP:
            self._phase = "asleep"
        elif event in (Event.READY, Event.WAKE, Event.STEP, Event.ADMITTED):
            self._phase = "service"
        return self._phase


class LogSummary:
    """Takes observations one by one, sums up those that come again and again in service, and keeps what a page or a document shows of them, in bounded memory."""

    def __init__(self) -> None:
        self.listed: list[ObservationDocument] = []
        self.failures: Counter[str] = Counter()
        self.unlisted = 0
        self._phases = Phases()
        self._settings: list[Observation] = []
        self._repeated: dict[tuple[Event, str | None, str | None], _Repeated] = {}

    def take(self, observation: Observation) -> None:
        """One more, in the log's order."""
        phase = self._phases.of(observation.event)
        if observation.event in REPEATED:
            key = (observation.event, observation.engine, printer_of(observation))
            if key in self._repeated or len(self._repeated) < MOST_LISTED:
                self._repeated.setdefault(key, _Repeated()).take(observation)
            else:
                self.unlisted += 1
            return
        if observation.event in _STATING and len(self._settings) < MOST_STATED:
            self._settings.append(observation)
        if observation.event is Event.FAILURE:
            self.failures[str(observation.values.get("message", "failure"))] += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(observation_document(observation, phase))
        else:
            self.unlisted += 1

    def document(self, tally: LogTally) -> LogDocument:
        """All of it."""
        notes = tally.notes()
        if self.unlisted:
            notes.append(f"{self.unlisted:,} more observations are not listed")
        return LogDocument(
            schema_version=SCHEMA_VERSION,
            kind="log",
            sources=tuple(
                SourceDocument(
                    name=source.name,
                    size_bytes=source.size_bytes,
                    sha256=source.sha256,
                    lines=source.lines,
                    from_s=source.from_s,
                    until_s=source.until_s,
                )
                for source in tally.sources
            ),
            engines=tuple(tally.engines),
            settings=dict(self._stated(tally)),
            observations=tuple(self.listed),
            repeated=tuple(found.document(*key) for key, found in self._repeated.items()),
            failures=dict(self.failures.most_common()),
            notes=tuple(notes),
        )

    def _stated(self, tally: LogTally) -> Iterator[tuple[str, int | float | str | bool]]:
        for engine in tally.engines:
            log = find_log(engine)
            if log is not None:
                yield from log.measured(one for one in self._settings if one.engine == engine).settings


class _Repeated:
    def __init__(self) -> None:
        self._count = 0
        self._from_s: float | None = None
        self._until_s: float | None = None
        self._series: dict[str, list[float]] = {}
        self._highest_at: dict[str, float | None] = {}

    def take(self, observation: Observation) -> None:
        self._count += 1
        at_s = observation.at_s
        if at_s is not None:
            self._from_s = at_s if self._from_s is None else self._from_s
            self._until_s = at_s
        for name, value in observation.values.items():
            number = number_of(value)
            if number is None or name == "elapsed_s" or name.endswith("_id"):
                continue
            known = self._series.get(name)
            if known is None:
                self._series[name] = [1, number, number, number, number]
                self._highest_at[name] = at_s
                continue
            if number > known[2]:
                self._highest_at[name] = at_s
            known[:] = [known[0] + 1, min(known[1], number), max(known[2], number), known[3], number]

    def document(self, event: Event, engine: str | None, printer: str | None) -> RepeatedDocument:
        return RepeatedDocument(
            event=event,
            engine=engine,
            printer=printer,
            count=self._count,
            from_s=self._from_s,
            until_s=self._until_s,
            series=tuple(
                SeriesDocument(
                    name=name,
                    count=int(found[0]),
                    lowest=found[1],
                    highest=found[2],
                    first=found[3],
                    last=found[4],
                    highest_at_s=self._highest_at[name],
                )
                for name, found in self._series.items()
            ),
        )


def log_document(observations: Iterable[Observation], tally: LogTally) -> LogDocument:
    """The document of a whole reading; `tally` is the one that the reading told."""
    summary = LogSummary()
    for observation in observations:
        summary.take(observation)
    return summary.document(tally)


def observation_document(observation: Observation, phase: LogPhase) -> ObservationDocument:
    """One observation as it is published."""
    return ObservationDocument(
        event=observation.event,
        phase=phase,
        engine=observation.engine,
        at_s=observation.at_s,
        rank=observation.rank,
        process=observation.process,
        container=observation.container,
        source=observation.place.source,
        line=observation.place.line,
        offset_bytes=observation.place.offset_bytes,
        values=dict(_published(observation.values)),
        text=observation.text,
    )


def printer_of(observation: Observation) -> str | None:
    """Who said it, in one word or two."""
    rank = None if observation.rank is None else f"rank {observation.rank}"
    parts = [part for part in (observation.container, observation.process or rank) if part]
    return " ".join(parts) or None


def number_of(value: Value) -> float | None:
    """A value as a number where it is one."""
    if isinstance(value, ByteRange):
        return float(value.expected)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _published(values: Mapping[str, Value]) -> Iterator[tuple[str, int | float | str | bool | ByteInterval]]:
    for name, value in values.items():
        yield name, byte_interval(value) if isinstance(value, ByteRange) else value
