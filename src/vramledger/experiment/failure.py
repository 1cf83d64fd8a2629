"""An engine's end or an out-of-memory error, classified as `vramledger diagnose` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from vramledger.diagnosis.diagnosis import Diagnosis, diagnose, with_remedies
from vramledger.diagnosis.evidence_lines import evidence_lines
from vramledger.errors import SourceError
from vramledger.experiment.plan import Step
from vramledger.experiment.result import Failure
from vramledger.observation import Event, Observation, Sample, Value
from vramledger.telemetry.evidence_files import collect
from vramledger.units import counted

LONGEST_LINE = 240
MOST_LINES = 12
MOST_REMEDIES = 5
KILLS = "cgroup_oom_kill_count"


def failure_of(
    step: Step,
    at_s: float,
    *,
    stage: str = "",
    log: Path | None = None,
    ending: str = "",
    samples: Iterable[Sample] = (),
    settings: Mapping[str, Value] | None = None,
    engine: str | None = None,
) -> Failure | None:
    """What happened, None where neither the engine ended nor its log tells of a failure.

    `ending` says in words how it ended ("the engine ended with signal 9"), empty where it still runs: then only what its log tells as
    a failure counts. `samples` are those until then: memory that rose, and kills that the control group counted. Lines in which an engine
    repeats what it was asked are left out.
    """
    readings = list(samples)
    notes: list[str] = []
    told: list[Diagnosis] = []
    if log is not None:
        try:
            read = collect([str(log)], engine=engine)
        except SourceError as problem:
            notes.append(problem.message)
        else:
            told = diagnose(
                read.observations,
                samples=readings,
                settings=settings,
                engine=engine or next(iter(read.engines), None),
            )
    found = next((item for item in told if item.is_failure), None)
    kills = _kills(readings)
    if found is None:
        if not ending and not kills:
            return None
        return Failure(
            step=step,
            at_s=at_s,
            stage=stage,
            words="; ".join(part for part in (ending, _counted(kills) or "no message tells why") if part),
            evidence=tuple(notes),
        )
    found = with_remedies(found, None)
    kind, answer = found.incident.kind, found.answer
    words = [] if kind is None else [kind.meaning]
    words += [ending] if ending else []
    words += [_counted(kills)] if kills else []
    return Failure(
        step=step,
        at_s=found.incident.first.at_s or at_s,
        stage=stage,
        classification="" if answer.failure_class is None else answer.failure_class.value,
        words="; ".join((*words, f"{answer.confidence.value} confidence")),
        evidence=tuple(
            f"{what}: {_quoted(item)}"
            for what, item in evidence_lines(found)
            if item.event is not Event.ADMITTED
        )[:MOST_LINES]
        + tuple(notes),
        remedies=tuple(
            f"{item.change}: {item.effect}" if item.effect else item.change for item in found.remedies
        )[:MOST_REMEDIES],
    )


def _counted(kills: int) -> str:
    return f"the control group counted {counted(kills, 'kill')} for want of memory" if kills else ""


def _quoted(item: Observation) -> str:
    text = " ".join(item.text.split())
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 3] + "..."


def _kills(samples: Iterable[Sample]) -> int:
    groups: dict[str, list[Sample]] = {}
    for item in samples:
        if item.name == KILLS:
            groups.setdefault(item.source, []).append(item)
    most = 0.0
    for items in groups.values():
        ordered = sorted(items, key=lambda item: item.at_s)
        most = max(most, ordered[-1].value - ordered[0].value)
    return int(most)
