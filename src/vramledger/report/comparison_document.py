"""The published comparison: what `vramledger compare --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import ByteInterval, PlanDocument, SchemaVersion, byte_interval, plan_document
from vramledger.ledger import Owner, Phase
from vramledger.search.comparison import Column, Comparison, Difference
from vramledger.search.evaluation import Status
from vramledger.search.rows import flags_of_outcome

SCHEMA_VERSION = "1.2"


class HeldDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the rank that holds most holds while serving, expected bytes by owner; all owners and what is unused are
    the device."""

    phase: Annotated[Phase, Meta(description="The serving phase with the larger peak.")]
    by_owner: dict[Owner, int]
    ranges: Annotated[
        dict[Owner, ByteInterval],
        Meta(description="The same with their ends, those of the owner's entries added."),
    ]
    peak_bytes: int
    unused_bytes: Annotated[int, Meta(description="Negative where more is held than the device has.")]
    device_total_bytes: int


class ColumnDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's answer."""

    name: Annotated[
        str, Meta(description="What the column is called: the engine with its version, or a plan's file.")
    ]
    engine: Annotated[str, Meta(description="As it was asked for.")]
    status: Annotated[
        Status, Meta(description="The verdict; refused where no bytes would help or there is no plan.")
    ]
    reason: Annotated[str, Meta(description="The verdict in a sentence, or why there is no plan.")]
    flags: Annotated[
        str, Meta(description="The question in the engine's own flags; empty of a plan that was made before.")
    ]
    held: HeldDocument | None
    plan: PlanDocument | None


class TermDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a difference: an owner, unused memory, a larger device, or another layout of the same bytes (bytes per token)."""

    name: str
    bytes: Annotated[int, Meta(description="What it leaves the pool more than in the first column.")]
    tokens: Annotated[int, Meta(description="The same in tokens of this column's pool.")]


class DifferenceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why one pool has more tokens than another; the terms sum to it, the largest first."""

    column: Annotated[int, Meta(description="Number of the column, from 0.")]
    against: Annotated[int, Meta(description="Number of the column it is compared with.")]
    tokens: int
    bytes: int
    terms: tuple[TermDocument, ...]


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Engines side by side."""

    schema_version: SchemaVersion
    kind: Literal["comparison"]
    columns: tuple[ColumnDocument, ...]
    differences: tuple[DifferenceDocument, ...]


def comparison_document(comparison: Comparison) -> ComparisonDocument:
    """The comparison as it is published."""
    return ComparisonDocument(
        schema_version=SCHEMA_VERSION,
        kind="comparison",
        columns=tuple(_column(column) for column in comparison.columns),
        differences=tuple(_difference(item) for item in comparison.differences),
    )


def _column(column: Column) -> ColumnDocument:
    held = column.held
    return ColumnDocument(
        name=column.label,
        engine=column.outcome.question.engine,
        status=column.outcome.status,
        reason=column.outcome.reason,
        flags=flags_of_outcome(column.outcome),
        held=None
        if held is None
        else HeldDocument(
            phase=held.phase,
            by_owner=held.by_owner,
            ranges={owner: byte_interval(size) for owner, size in held.ranges().items()},
            peak_bytes=held.peak_bytes,
            unused_bytes=held.unused_bytes,
            device_total_bytes=held.rank.device_total_bytes,
        ),
        plan=None if column.plan is None else plan_document(column.plan),
    )


def _difference(item: Difference) -> DifferenceDocument:
    return DifferenceDocument(
        column=item.column,
        against=item.against,
        tokens=item.tokens,
        bytes=item.bytes,
        terms=tuple(
            TermDocument(name=term.name, bytes=term.bytes, tokens=term.tokens) for term in item.terms
        ),
    )
