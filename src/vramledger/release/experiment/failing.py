"""The engine's end in the middle of an experiment, and what it was."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vramledger.experiment.failure import failure_of
from vramledger.experiment.plan import Step
from vramledger.experiment.result import Failure
from vramledger.observation import Sample


def failure_in(
    step: Step,
    stage: str,
    at_s: float,
    *,
    log: str | Path = "",
    ending: str = "",
    samples: Iterable[Sample] = (),
    engine: str | None = None,
) -> Failure | None:
    """By its log, where it has one here."""
    path = Path(log) if log else None
    return failure_of(
        step,
        at_s,
        stage=stage,
        log=path if path is not None and path.exists() else None,
        ending=ending,
        samples=samples,
        engine=engine,
    )
