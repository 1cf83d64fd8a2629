"""Why an engine that was started ended: its log and the series taken meanwhile, diagnosed."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from vramledger.diagnosis.diagnosis import Diagnosis, diagnose, with_remedies
from vramledger.diagnosis.remedies import Planner
from vramledger.engines import engine_name
from vramledger.errors import VramledgerError
from vramledger.hardware.catalogue import find_device
from vramledger.planning import load_model
from vramledger.reconciliation.failed_plan import planner_of
from vramledger.release.steps import Order
from vramledger.telemetry.evidence_files import collect


class Autopsy(Struct, frozen=True, kw_only=True):
    """Every failure found, and the files with what each was taken for."""

    failures: tuple[Diagnosis, ...]
    sources: tuple[tuple[str, str], ...]


def autopsy(order: Order, files: tuple[Path, ...]) -> Autopsy:
    """Diagnose those of `files` that are there, remedies sized by plans of the order's model with the order's flags.

    Raises SourceError for a file that cannot be read.
    """
    name = engine_name(order.engine)
    there = [str(path) for path in files if path.exists() and path.stat().st_size]
    collected = collect(there, engine=name)
    settings = {
        key: value for key, value in order.flags.items() if isinstance(value, str | int | float | bool)
    }
    found = diagnose(
        collected.observations,
        samples=collected.samples,
        snapshots=collected.snapshots,
        settings=settings,
        engine=name,
    )
    return Autopsy(
        failures=tuple(with_remedies(item, _planner(order, item)) for item in found),
        sources=tuple(collected.kinds),
    )


def _planner(order: Order, told: Diagnosis) -> Planner | None:
    _, _, version = order.engine.partition("==")
    try:
        return planner_of(
            load_model(order.model),
            find_device(order.device),
            engine=engine_name(order.engine),
            version=version or None,
            settings={**told.facts.settings, **order.flags},
        )
    except VramledgerError:
        return None
