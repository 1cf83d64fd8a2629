"""Why an engine that was started ended: its log and the series taken meanwhile, diagnosed."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from vramledger.diagnosis.diagnosis import Diagnosis, diagnose, with_remedies
from vramledger.diagnosis.remedy import Planner
from vramledger.engines import engine_name
from vramledger.errors import VramledgerError
from vramledger.hardware.catalogue import find_device
from vramledger.planning import load_model
from vramledger.reconciliation.failed_plan import planner_of
from vramledger.release.steps import Order
from vramledger.telemetry.evidence_files import collect

MOST_ERRORS = 4
_READ_BYTES = 1 << 22
_ERROR = re.compile(r"\b[A-Za-z_0-9.]{1,100}(?:Error|Exception): .{1,400}")


class Autopsy(Struct, frozen=True, kw_only=True):
    """Every failure found, the files with what each was taken for, and the exceptions that the end of the log names."""

    failures: tuple[Diagnosis, ...]
    sources: tuple[tuple[str, str], ...]
    exceptions: tuple[str, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether a failure was found whose class is known."""
        return any(item.answer.failure_class is not None for item in self.failures)


def autopsy(order: Order, files: tuple[Path, ...]) -> Autopsy:
    """Diagnose those of `files`, the log first, that are there, remedies sized by plans of the order's model with the order's flags.

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
        exceptions=_exceptions(files[0]) if files else (),
    )


def _exceptions(log: Path) -> tuple[str, ...]:
    """The first exceptions of the log's last 4 MiB, each once: an engine's first is the cause of what follows."""
    if not log.exists():
        return ()
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _READ_BYTES, 0))
        text = file.read(_READ_BYTES).decode("utf-8", "replace")
    lines = (line[:4000] for line in text.splitlines())
    found = (_ERROR.search(line) for line in lines if " WARNING " not in line and " INFO " not in line)
    return tuple(dict.fromkeys(item[0] for item in found if item is not None))[:MOST_ERRORS]


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
