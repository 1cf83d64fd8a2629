"""What all stages come to: the operating point, the errors of the forecasts, the verdict, and what goes into other documents."""

from __future__ import annotations

from pathlib import Path

from vramledger.documents.measurement import measurement_document
from vramledger.documents.measurement_reader import read_measurement
from vramledger.documents.plan_reader import plan_of
from vramledger.errors import InputError, VramledgerError
from vramledger.experiment.folder import MANIFEST, MEASUREMENT, RECONCILIATION, SERIES, STEP
from vramledger.experiment.forecast_error import forecast_errors
from vramledger.experiment.headroom import room_of
from vramledger.experiment.operating_point import operating_point
from vramledger.experiment.record_file import records_of
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.writing import write_manifest
from vramledger.measurement import Measurement
from vramledger.models.sources.bounded_file import read_whole
from vramledger.reconciliation.document import reconciliation_document
from vramledger.reconciliation.reconcile import reconcile
from vramledger.reconciliation.result import Reconciliation
from vramledger.release.experiment.renewed_manifest import renewed_manifest
from vramledger.release.experiment.verdict import conditions_of, verdict_of
from vramledger.release.experiment.work import Skipped, Work
from vramledger.simulation.step_file import step_json
from vramledger.telemetry.log_measurement import log_measurement
from vramledger.telemetry.merging import merged
from vramledger.telemetry.series_file import read_series
from vramledger.telemetry.series_measurement import series_measurement
from vramledger.whole_file import write_document_file, write_whole

LIMIT_BYTES = 64 * 2**20


def conclude(work: Work) -> None:
    """From the journal and the files beside it alone: no engine is asked. Raises Skipped where no load was measured."""
    found = work.now
    whole = [stage for stage in found.stages if stage.is_whole and stage.measured.offered]
    if whole:
        work.told("finding the operating point")
        work.change(
            point=operating_point(
                found.stages,
                lambda stage: records_of(work.journal.folder, stage, found.plan.slo),
                found.plan,
                headroom_bytes=_headroom_bytes(work),
                failure=found.failure,
            ),
            forecast_errors=forecast_errors(whole),
        )
    if found.latency_model is not None:
        write_whole(work.journal.folder / STEP, step_json(found.latency_model.step))
    work.change(verdict=verdict_of(work.now), conditions=conditions_of(work.now))
    if not whole:
        raise Skipped("no load was measured")


def write_measurement(work: Work, told: Measurement, logs: tuple[Path, ...]) -> None:
    """measurement.json: what the engine said at the end, its logs and the series together. What cannot be read becomes a note."""
    parts = [told]
    try:
        if logs:
            names = tuple(str(log) for log in logs)
            parts.insert(0, log_measurement(names, engine=work.now.target.engine))
        series = work.journal.folder / SERIES
        if series.exists():
            parts.append(series_measurement(read_series(series), SERIES))
        found = merged(parts)
    except VramledgerError as problem:
        work.note(f"no measurement: {problem.message}")
        return
    write_document_file(measurement_document(found), work.journal.folder / MEASUREMENT)


def write_manifest_of(work: Work, before: ManifestDocument) -> None:
    """reconciliation.json and manifest.json: the manifest that was given, with what was measured and found."""
    planned = plan_of(before.plan)
    folder = work.journal.folder
    measurement = _measured(folder / MEASUREMENT)
    reconciled: Reconciliation | None = None
    try:
        if measurement is not None:
            work.told("reconciling")
            reconciled = reconcile(planned, measurement)
            write_document_file(reconciliation_document(reconciled), folder / RECONCILIATION)
        document = renewed_manifest(before, planned, work.now, measurement, reconciled)
    except InputError as problem:
        work.note(f"no manifest: {problem.message}")
        return
    write_manifest(document, folder / MANIFEST, force=True)


def _measured(path: Path) -> Measurement | None:
    if not path.exists():
        return None
    return read_measurement(read_whole(path, LIMIT_BYTES, InputError), where=path.name)


def _headroom_bytes(work: Work) -> int | None:
    """The least that was free on a device, or of the machine, while load was sent. A series that cannot be read, as after a power failure, costs
    this figure alone."""
    series = work.journal.folder / SERIES
    if not series.exists() or not work.now.stages:
        return None
    from_s = min(stage.began_s for stage in work.now.stages)
    until_s = max(stage.ended_s for stage in work.now.stages)
    try:
        smallest = room_of(one for one in read_series(series) if from_s <= one.at_s <= until_s).smallest
    except VramledgerError as problem:
        work.note(f"no headroom: {problem.message}")
        return None
    return None if smallest is None else max(smallest.bytes, 0)
