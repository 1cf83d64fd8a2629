"""What an item of the audit found."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.measured import utc


class State(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_EVIDENCED = "not evidenced"


class Cited(Struct, frozen=True, kw_only=True):
    """What in the manifest says so, where that comes from, and when it was seen (None: undated)."""

    text: str
    source: str
    at: str | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """The state and what it rests on. `reason` says why it is not passed, "" where it is."""

    state: State
    evidence: tuple[Cited, ...] = ()
    reason: str = ""


def passed(*evidence: Cited) -> Finding:
    """Nothing passes without evidence. Raises ValueError where there is none."""
    if not evidence:
        raise ValueError("an item passes on evidence")
    return Finding(state=State.PASSED, evidence=evidence)


def failed(reason: str, *evidence: Cited) -> Finding:
    return Finding(state=State.FAILED, evidence=evidence, reason=reason)


def not_evidenced(reason: str, *evidence: Cited) -> Finding:
    """What there is of evidence may be told although it is not enough."""
    return Finding(state=State.NOT_EVIDENCED, evidence=evidence, reason=reason)


def of_plan(document: ManifestDocument, text: str) -> Cited:
    """A citation of the plan in the manifest."""
    inputs = document.plan.inputs
    return Cited(
        text=text, source=f"plan under {inputs.engine} {inputs.engine_version}", at=document.created_at
    )


def of_model(document: ManifestDocument, text: str) -> Cited:
    """A citation of the model's own files."""
    return Cited(text=text, source=f"files of {document.model.id}", at=document.created_at)


def of_measurement(document: ManifestDocument, text: str, source: str, at_s: float | None = None) -> Cited:
    """A citation of the measurement; undated readings have the time that their sources end at."""
    measurement = document.measurement
    times = [] if measurement is None else [s.until_s for s in measurement.sources if s.until_s is not None]
    return Cited(text=text, source=source, at=utc(at_s if at_s is not None else max(times, default=None)))


def of_facts(document: ManifestDocument, text: str) -> Cited:
    """A citation of what was declared, by the file that was given."""
    name = next((source.name for source in document.sources if source.what == "facts"), "facts")
    return Cited(text=text, source=name, at=document.created_at)
