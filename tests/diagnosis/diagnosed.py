"""Texts diagnosed as the command does it."""

from __future__ import annotations

import io
from collections.abc import Iterable

from vramledger.diagnosis.diagnosis import Diagnosis, diagnose
from vramledger.diagnosis.frames import FRAMES
from vramledger.diagnosis.messages import FAILURES
from vramledger.observation import Observation, Sample, Value
from vramledger.telemetry.evidence_files import is_log, remarks_of, taken_lines
from vramledger.telemetry.log_reading import read_log


def read(text: str, name: str = "report") -> list[Observation]:
    """The observations of a text, with what it says in words."""
    raw = text.encode()
    stream = io.BytesIO(raw)
    stream.name = name
    found = list(read_log(stream, patterns=(*FAILURES, *FRAMES), now_s=1_796_000_000.0))
    source = found[0].place.source if found else name
    return [*found, *([] if is_log(found) else remarks_of(raw, source, taken_lines(found)))]


def told(
    *texts: str,
    samples: Iterable[Sample] = (),
    engine: str | None = None,
    **settings: Value,
) -> list[Diagnosis]:
    """Everything that several texts tell together."""
    observations = [item for number, text in enumerate(texts) for item in read(text, f"log{number}")]
    return diagnose(observations, samples=samples, settings=settings, engine=engine)


def one(*texts: str, **given: object) -> Diagnosis:
    """The only failure that the texts tell."""
    (found,) = told(*texts, **given)  # type: ignore[arg-type]
    return found
