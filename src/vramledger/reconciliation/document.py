"""The published reconciliation: what `vramledger reconcile --json` writes, and a part of a manifest."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.decoding import by_name, read_document
from vramledger.documents.plan import EvidenceDocument, SchemaVersion
from vramledger.ledger import Owner, Phase
from vramledger.reconciliation.result import (
    Budget,
    Cause,
    Line,
    Reconciliation,
    Section,
    SettingDifference,
    Standing,
    Unit,
)

SCHEMA_VERSION = "1.0"

Ranks = Annotated[tuple[int, ...], Meta(description="World ranks that are alike; empty for the instance.")]


class IntervalDocument(msgspec.Struct, frozen=True, kw_only=True):
    """At least, expected, at most, in the unit of the line."""

    low: int | float
    expected: int | float
    high: int | float


class ReasonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for a difference, likeliest first."""

    cause: Cause
    text: str
    evidence: tuple[str, ...]
    explains: Annotated[
        int | float | None,
        Meta(
            description="Part of the difference that goes away with it, with its sign; null where not computed."
        ),
    ]
    share: Annotated[float | None, Meta(description="The same over the difference.")]
    is_tested: Annotated[bool, Meta(description="Whether a plan under the measured setting shows it.")]


class LineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: predicted, measured, measured less predicted, where it stands."""

    section: Section
    name: str
    unit: Unit
    ranks: Ranks
    owners: tuple[Owner, ...]
    entries: Annotated[tuple[str, ...], Meta(description="Names of the ledger's entries that it covers.")]
    phase: Phase | None
    predicted: IntervalDocument | None
    measured: IntervalDocument | None
    difference: Annotated[int | float | None, Meta(description="Measured less predicted, expected values.")]
    beyond: Annotated[
        int | float | None,
        Meta(description="By how much the measured range misses the predicted one, signed; 0 inside."),
    ]
    standing: Standing
    evidence: Annotated[EvidenceDocument | None, Meta(description="How the measured figure is known.")]
    reasons: tuple[ReasonDocument, ...]


class SettingDifferenceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that plan and measurement state differently."""

    name: str
    planned: str | int | float | bool
    measured: str | int | float | bool
    flag: str | None


class BudgetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The pool recomputed with measured terms in place of calculated ones."""

    ranks: Ranks
    budget_bytes: IntervalDocument
    planned_bytes: IntervalDocument
    pool_bytes: IntervalDocument
    num_blocks: IntervalDocument
    tokens: IntervalDocument
    max_concurrency: IntervalDocument
    measured_terms: tuple[str, ...]
    calculated_terms: tuple[str, ...]
    rule: Annotated[str, Meta(description="How bytes became blocks and tokens.")]


class ReconciliationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and a measurement side by side."""

    schema_version: SchemaVersion
    kind: Literal["reconciliation"]
    standing: Annotated[
        Standing,
        Meta(
            description="Outside where a line is, else inside where a line is, unless weights lie elsewhere than planned."
        ),
    ]
    model: str
    engine: str
    engine_version: str
    device: str
    sources: Annotated[tuple[str, ...], Meta(description="What was measured with.")]
    differences: Annotated[
        tuple[SettingDifferenceDocument, ...],
        Meta(description="Settings that differ: they explain the rest."),
    ]
    agreeing: Annotated[tuple[str, ...], Meta(description="Settings that were compared and agree.")]
    unknown_settings: Annotated[
        tuple[str, ...], Meta(description="Settings that were measured and have no flag here.")
    ]
    lines: tuple[LineDocument, ...]
    budget: BudgetDocument | None
    notes: tuple[str, ...]


def reconciliation_document(found: Reconciliation) -> ReconciliationDocument:
    """The reconciliation as it is published."""
    return ReconciliationDocument(
        schema_version=SCHEMA_VERSION,
        kind="reconciliation",
        standing=found.standing,
        model=found.model,
        engine=found.engine,
        engine_version=found.engine_version,
        device=found.device,
        sources=found.sources,
        differences=by_name(found.differences, tuple[SettingDifferenceDocument, ...]),
        agreeing=found.agreeing,
        unknown_settings=found.unknown_settings,
        lines=by_name(found.lines, tuple[LineDocument, ...]),
        budget=None if found.budget is None else by_name(found.budget, BudgetDocument),
        notes=found.notes,
    )


def reconciliation_of(document: ReconciliationDocument) -> Reconciliation:
    """The reconciliation behind a document: `reconciliation_document` undone."""
    return Reconciliation(
        model=document.model,
        engine=document.engine,
        engine_version=document.engine_version,
        device=document.device,
        sources=document.sources,
        differences=by_name(document.differences, tuple[SettingDifference, ...]),
        agreeing=document.agreeing,
        unknown_settings=document.unknown_settings,
        lines=by_name(document.lines, tuple[Line, ...]),
        budget=None if document.budget is None else by_name(document.budget, Budget),
        notes=document.notes,
    )


def read_reconciliation(text: bytes, *, where: str) -> Reconciliation:
    """What `vramledger reconcile --json` wrote; `where` names it in errors. Raises InputError for anything else."""
    return read_document(
        text,
        ReconciliationDocument,
        reconciliation_of,
        where=where,
        name="reconciliation",
        command="vramledger reconcile --json",
    )
