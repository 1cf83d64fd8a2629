"""What a page on an experiment is made from: the value itself and the files beside it, as far as they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from vramledger.answer import Plan
from vramledger.errors import InputError, VramledgerError
from vramledger.experiment.folder import MANIFEST, MEASUREMENT, RECONCILIATION, RECORDS, SERIES
from vramledger.experiment.result import Experiment, Stage
from vramledger.experiment.served import Served
from vramledger.measurement import Measurement
from vramledger.observation import Sample
from vramledger.reconciliation.result import Reconciliation
from vramledger.report.chart import Point

MOST_SAMPLES = 4_000_000
LARGEST_DOCUMENT_BYTES = 64 * 2**20

_Value = TypeVar("_Value")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment and what was kept beside it. `rows` are requests by the name of their stage. What is not there is None or empty, and
    `missing` says why where a file was there and could not be read."""

    found: Experiment
    samples: tuple[Sample, ...] = ()
    rows: Mapping[str, tuple[Served, ...]] = {}
    plan: Plan | None = None
    measurement: Measurement | None = None
    reconciliation: Reconciliation | None = None
    missing: tuple[str, ...] = ()


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of one source over time, Unix seconds."""

    name: str
    source: str
    label: str
    points: tuple[Point, ...]


def evidence_of(folder: Path, found: Experiment) -> Evidence:
    """The files of an experiment's folder. One that is not there or cannot be read is left out; no page fails for it."""
    from vramledger.telemetry.series_file import read_series

    missing: list[str] = []

    def read(path: Path, how: Callable[[Path], _Value]) -> _Value | None:
        if not path.is_file():
            return None
        try:
            return how(path)
        except (VramledgerError, OSError, ValueError) as problem:
            missing.append(f"{path.name}: {problem}")
            return None

    samples = read(folder / SERIES, lambda path: tuple(islice(read_series(path), MOST_SAMPLES)))
    rows = {}
    for stage in found.stages:
        kept = read(_records(folder, stage), _read_rows)
        if kept is not None:
            rows[stage.name] = kept
    return Evidence(
        found=found,
        samples=samples or (),
        rows=rows,
        plan=read(folder / MANIFEST, _plan),
        measurement=read(folder / MEASUREMENT, _measurement),
        reconciliation=read(folder / RECONCILIATION, _reconciliation),
        missing=tuple(missing),
    )


def tracks(samples: Iterable[Sample], *names: str) -> tuple[Track, ...]:
    """Samples of these names, each quantity on its own, in the order of time."""
    wanted = frozenset(names)
    kept: dict[tuple[str, str, str, int | None], list[Point]] = {}
    for sample in samples:
        if sample.name in wanted:
            key = (sample.name, sample.source, sample.label, sample.rank)
            kept.setdefault(key, []).append((sample.at_s, float(sample.value)))
    return tuple(
        Track(name=name, source=source, label=label, points=tuple(sorted(points)))
        for (name, source, label, _), points in kept.items()
    )


def summed(found: Iterable[Track]) -> tuple[Point, ...]:
    """The sum of several tracks at each time that any of them has: processes that come and go count while they are asked."""
    sums: dict[float, float] = {}
    for track in found:
        for at_s, value in track.points:
            sums[at_s] = sums.get(at_s, 0.0) + value
    return tuple(sorted(sums.items()))


def _records(folder: Path, stage: Stage) -> Path:
    """The stage's records, and never a file elsewhere whatever the experiment says."""
    return folder / RECORDS / Path(stage.records).name


def _read_rows(path: Path) -> tuple[Served, ...]:
    from vramledger.experiment.record_file import read_records

    return read_records(path)


def _bytes(path: Path) -> bytes:
    from vramledger.models.sources.bounded_file import read_whole

    return read_whole(path, LARGEST_DOCUMENT_BYTES, InputError)


def _plan(path: Path) -> Plan:
    from vramledger.documents.plan_reader import plan_of
    from vramledger.manifest.reader import read_manifest

    return plan_of(read_manifest(_bytes(path), path.name).document.plan)


def _measurement(path: Path) -> Measurement:
    from vramledger.documents.measurement_reader import read_measurement

    return read_measurement(_bytes(path), where=path.name)


def _reconciliation(path: Path) -> Reconciliation:
    from vramledger.reconciliation.document import read_reconciliation

    return read_reconciliation(_bytes(path), where=path.name)
