"""The published diagnosis: what `vramledger diagnose --json` writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.diagnosis.arithmetic import Arithmetic
from vramledger.diagnosis.diagnosis import Diagnosis
from vramledger.diagnosis.evidence_lines import evidence_lines
from vramledger.diagnosis.remedy import Basis
from vramledger.diagnosis.terms import Confidence, FailureClass
from vramledger.documents.plan import SCHEMA_VERSION, ByteInterval, SchemaVersion, byte_interval
from vramledger.ledger import ByteRange, Owner


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A file and what it was taken for."""

    name: str
    kind: Annotated[str, Meta(description="log, snapshot or series.")]


class EvidenceLineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the diagnosis rests on. `at_s` is Unix time, null where none was printed."""

    what: str
    file: str
    line: int
    at_s: float | None
    text: str


class RuleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that spoke, or one that could not: then `lacking` names the facts it needs."""

    name: str
    step: str
    says: Annotated[dict[str, int], Meta(description="Weight by class; a negative one speaks against it.")]
    why: str
    lacking: tuple[str, ...] = ()


class HoldingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of the device and who holds them; a negative low end is what rounding allows."""

    who: str
    bytes: ByteInterval


class ArithmeticDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The message's own numbers. null is not stated, never 0."""

    wanted_bytes: ByteInterval | None
    available_bytes: ByteInterval | None
    missing_bytes: ByteInterval | None
    total_bytes: ByteInterval | None
    wanted_tokens: int | None
    available_tokens: int | None
    holders: tuple[HoldingDocument, ...]
    share_interval: tuple[float, float] | None
    lines: tuple[str, ...]


class MomentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What stood beside the message when it was printed; null is not told."""

    stage: str | None
    ready: bool | None
    since_ready_s: float | None
    running_requests: int | None
    waiting_requests: int | None
    kv_usage_ratio: float | None
    kv_free_blocks: int | None
    scheduled_tokens: int | None
    prefill_just_before: bool
    decode_just_before: bool
    preemptions: int | None
    device_slope_bytes_per_h: float | None
    host_slope_bytes_per_h: float | None
    previous_engine_s: float | None


class RemedyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One change and its size: of the ledger, of the messages, or of a rule that has none."""

    change: str
    effect: str
    frees_bytes: int | None
    tokens: Annotated[int | None, Meta(description="What the KV pool gains, negative: loses.")]
    basis: Basis
    needs: str


class LedgerLineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An owner that the failure is about; entry and bytes where the failing instance could be planned."""

    owner: Owner
    entry: str
    bytes: int | None


class FailureDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One failure. `failure_class` null: it cannot be told. `is_failure` false: a warning or a trend, nothing failed."""

    failure_class: FailureClass | None
    runner_up: FailureClass | None
    confidence: Confidence
    is_failure: bool
    told_in_words: bool
    message: str
    meaning: str
    domain: str | None
    engine: str | None
    at_s: float | None
    repeats: int
    messages_by_printer: dict[str, int]
    arithmetic: ArithmeticDocument
    moment: MomentDocument
    evidence: tuple[EvidenceLineDocument, ...]
    rules: tuple[RuleDocument, ...]
    rules_without_evidence: tuple[RuleDocument, ...]
    ledger: tuple[LedgerLineDocument, ...]
    prevention: str
    remedies: tuple[RemedyDocument, ...]
    surer: Annotated[tuple[str, ...], Meta(description="What would make it surer, the first most of all.")]


class DiagnosisDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every failure that the files tell, in their order; none where they tell none."""

    schema_version: SchemaVersion
    kind: Literal["diagnosis"]
    sources: tuple[SourceDocument, ...]
    failures: tuple[FailureDocument, ...]
    notes: tuple[str, ...]


def diagnosis_document(
    told: Iterable[Diagnosis], *, sources: Iterable[tuple[str, str]], notes: Iterable[str] = ()
) -> DiagnosisDocument:
    """The diagnoses as they are published."""
    return DiagnosisDocument(
        schema_version=SCHEMA_VERSION,
        kind="diagnosis",
        sources=tuple(SourceDocument(name=name, kind=kind) for name, kind in sources),
        failures=tuple(_failure(item) for item in told),
        notes=tuple(notes),
    )


def _failure(told: Diagnosis) -> FailureDocument:
    answer, facts, kind = told.answer, told.facts, told.incident.kind
    return FailureDocument(
        failure_class=answer.failure_class,
        runner_up=answer.runner_up,
        confidence=answer.confidence,
        is_failure=told.is_failure,
        told_in_words=told.told_in_words,
        message="" if kind is None else kind.name,
        meaning="" if kind is None else kind.meaning,
        domain=None if facts.domain is None else facts.domain.value,
        engine=facts.engine,
        at_s=told.incident.first.at_s,
        repeats=told.repeats,
        messages_by_printer=dict(told.incident.ranks),
        arithmetic=_arithmetic(told.arithmetic),
        moment=_moment(told),
        evidence=tuple(
            EvidenceLineDocument(
                what=what,
                file=item.place.source,
                line=item.place.line,
                at_s=item.at_s,
                text=item.text,
            )
            for what, item in evidence_lines(told)
        ),
        rules=tuple(
            RuleDocument(
                name=rule.name,
                step=rule.step.name.lower(),
                says={kind.value: int(weight) for kind, weight in rule.says.items()},
                why=rule.why,
            )
            for rule in answer.spoken.applied
        ),
        rules_without_evidence=tuple(
            RuleDocument(
                name=rule.name,
                step=rule.step.name.lower(),
                says={kind.value: int(weight) for kind, weight in rule.says.items()},
                why=rule.why,
                lacking=lacking,
            )
            for rule, lacking in answer.spoken.unasked
        ),
        ledger=tuple(
            LedgerLineDocument(owner=item.owner, entry=item.entry, bytes=item.bytes) for item in told.ledger
        ),
        prevention=told.prevention,
        remedies=tuple(
            RemedyDocument(
                change=item.change,
                effect=item.effect,
                frees_bytes=item.frees_bytes,
                tokens=item.tokens,
                basis=item.basis,
                needs=item.needs,
            )
            for item in told.remedies
        ),
        surer=answer.surer,
    )


def _interval(size: ByteRange | None) -> ByteInterval | None:
    return None if size is None else byte_interval(size)


def _arithmetic(sums: Arithmetic) -> ArithmeticDocument:
    return ArithmeticDocument(
        wanted_bytes=_interval(sums.wanted_bytes),
        available_bytes=_interval(sums.available_bytes),
        missing_bytes=_interval(sums.missing_bytes),
        total_bytes=_interval(sums.total_bytes),
        wanted_tokens=sums.wanted_tokens,
        available_tokens=sums.available_tokens,
        holders=tuple(
            HoldingDocument(who=item.who, bytes=byte_interval(item.bytes)) for item in sums.holders
        ),
        share_interval=sums.share_interval,
        lines=sums.lines,
    )


def _moment(told: Diagnosis) -> MomentDocument:
    facts = told.facts
    return MomentDocument(
        stage=None if facts.stage is None else facts.stage.value,
        ready=facts.ready,
        since_ready_s=facts.since_ready_s,
        running_requests=facts.running_requests,
        waiting_requests=facts.waiting_requests,
        kv_usage_ratio=facts.kv_usage_ratio,
        kv_free_blocks=told.moment.free_blocks,
        scheduled_tokens=facts.scheduled_tokens,
        prefill_just_before=facts.prefill_just_before,
        decode_just_before=facts.decode_just_before,
        preemptions=facts.preemptions,
        device_slope_bytes_per_h=facts.device_slope_bytes_per_h,
        host_slope_bytes_per_h=facts.host_slope_bytes_per_h,
        previous_engine_s=facts.previous_engine_s,
    )
