"""Documents that commands read back from files, with the digest of each that a manifest names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vramledger.errors import FlagError, InputError
from vramledger.models.sources.bounded_file import path_of, quote, read_whole, shown
from vramledger.models.sources.json_file import parse_json_object

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.manifest.declared import Facts
    from vramledger.manifest.difference import Subject
    from vramledger.manifest.document import SourceRecord
    from vramledger.manifest.experiment_facts import ExperimentFacts
    from vramledger.manifest.reader import Reading
    from vramledger.measurement import Measurement
    from vramledger.reconciliation.result import Reconciliation
    from vramledger.report.diff_document import SideDocument

LIMIT_BYTES = 64 * 2**20

What = Literal["plan", "measurement", "reconciliation", "facts", "capacity", "experiment"]


def read_file(text: str) -> tuple[bytes, Path]:
    """The whole of a file of at most 64 MiB. Raises SourceError or InputError."""
    path = path_of(text)
    return read_whole(path, LIMIT_BYTES, InputError), path


def check_out(out: str | None, sources: Iterable[str | None], *, flag: str = "-o") -> None:
    """What `flag` names is a file, and none of the files that are read: it would take their place. Raises FlagError."""
    name_of_flag = "out" if flag == "-o" else flag.strip("-")
    if out is None:
        return
    if out == "-":
        raise FlagError(f"{flag} takes a file; --json prints the document", flag=name_of_flag, value=out)
    for name in sources:
        try:
            same = name is not None and name != "-" and path_of(out).samefile(path_of(name))
        except (OSError, ValueError):
            continue
        if same:
            raise FlagError(
                f"{flag} names the source {quote(name, 120)}; give another file",
                flag=name_of_flag,
                value=out,
            )


def record(what: What, path: Path, data: bytes) -> SourceRecord:
    """The file as a source of the manifest."""
    from vramledger.manifest.document import SourceRecord

    digest = hashlib.sha256(data).hexdigest()
    return SourceRecord(what=what, name=shown(path.name), sha256=digest, from_=None, until=None)


def plan_from(text: str) -> tuple[Plan, SourceRecord]:
    """The plan in a file of `vramledger plan --json`."""
    from vramledger.documents.plan_reader import read_plan

    data, path = read_file(text)
    return read_plan(data, where=shown(path)), record("plan", path, data)


def measurement_from(text: str) -> Measurement:
    """The measurement in a file of `vramledger measure --json`."""
    from vramledger.documents.measurement_reader import read_measurement

    data, path = read_file(text)
    return read_measurement(data, where=shown(path))


def reconciliation_from(text: str) -> tuple[Reconciliation, SourceRecord]:
    """The reconciliation in a file of `vramledger reconcile --json`."""
    from vramledger.reconciliation.document import read_reconciliation

    data, path = read_file(text)
    return read_reconciliation(data, where=shown(path)), record("reconciliation", path, data)


def measurement_records(measurement: Measurement) -> tuple[SourceRecord, ...]:
    """What a measurement was read from, with the times that it spans."""
    from vramledger.manifest.document import SourceRecord
    from vramledger.manifest.measured import utc

    return tuple(
        SourceRecord(
            what="measurement",
            name=source.name,
            sha256=source.sha256,
            from_=utc(source.from_s),
            until=utc(source.until_s),
        )
        for source in measurement.sources
    )


def facts_from(facts: str | None, capacity: str | None) -> tuple[Facts, tuple[SourceRecord, ...]]:
    """Declarations, with the operating points of the other file added to theirs."""
    from msgspec.structs import replace

    from vramledger.manifest.declared import NOTHING_DECLARED, read_capacity, read_facts

    found, records = NOTHING_DECLARED, []
    if facts is not None:
        data, path = read_file(facts)
        found = read_facts(data, shown(path))
        records.append(record("facts", path, data))
    if capacity is not None:
        data, path = read_file(capacity)
        more = read_capacity(data, shown(path))
        found = replace(found, capacity_results=(*found.capacity_results, *more))
        records.append(record("capacity", path, data))
    return found, tuple(records)


def experiment_from(text: str) -> tuple[ExperimentFacts, SourceRecord]:
    """What an experiment found, out of its folder or its experiment.json."""
    from msgspec.structs import replace

    from vramledger.experiment.folder import JOURNAL
    from vramledger.experiment.journal import read_experiment
    from vramledger.manifest.experiment_facts import facts_of
    from vramledger.manifest.measured import utc

    path = path_of(text)
    path = path / JOURNAL if path.is_dir() else path
    found = read_experiment(path)
    source = record("experiment", path, read_whole(path, LIMIT_BYTES, InputError))
    until = max((stage.ended_s for stage in found.stages), default=None)
    return facts_of(found, source=shown(path.name)), replace(
        source, from_=utc(found.began_s), until=utc(until)
    )


def manifest_from(text: str) -> Reading:
    """The manifest in a file. Raises InputError for one that was changed or is none, SourceError for no file."""
    from vramledger.manifest.reader import read_manifest

    data, path = read_file(text)
    return read_manifest(data, shown(path))


def subject_from(text: str) -> tuple[Subject, SideDocument]:
    """A manifest or a plan, and what is said of it."""
    from vramledger.manifest.reader import is_manifest, manifest_of
    from vramledger.report.diff_document import SideDocument

    data, path = read_file(text)
    where = shown(path)
    raw = parse_json_object(data, where, InputError)
    if is_manifest(raw):
        reading = manifest_of(raw, where)
        return reading.document, SideDocument(
            file=where, kind="manifest", digest=reading.document.digest, notes=reading.notes
        )
    if raw.get("kind") != "plan":
        raise InputError(
            f"{where} is neither a manifest nor a plan: its kind is {quote(raw.get('kind'))}",
            file=where,
            key="kind",
            value=quote(raw.get("kind")),
        )
    from vramledger.documents.plan import plan_document
    from vramledger.documents.plan_reader import read_plan

    document = plan_document(read_plan(data, where=where))
    return document, SideDocument(file=where, kind="plan", digest=None, notes=())


def time_text(text: str | None) -> str:
    """--at, or now: UTC as "2026-11-30T01:02:03Z", or Unix seconds. Raises FlagError for anything else."""
    import time
    from datetime import UTC, datetime

    from vramledger.manifest.measured import utc

    if text is None:
        return utc(time.time()) or ""
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        found = utc(float(text))
        if found is not None:
            return found
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        pass
    raise FlagError(
        f"--at {quote(text)} is no time with its zone, such as 2026-11-30T01:02:03Z",
        flag="at",
        value=text[:80],
    )


def seconds(text: str) -> float:
    """Unix time of what `time_text` gave."""
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()
