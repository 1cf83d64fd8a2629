"""The published difference: what `vramledger diff --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SchemaVersion
from vramledger.manifest.difference import Change, Difference
from vramledger.manifest.quantity import Group, Unit
from vramledger.manifest.thresholds import Judged, Outcome

SCHEMA_VERSION = "1.1"


class SideDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two: its file, what kind of document it is, and the digest of a manifest."""

    file: str
    kind: Literal["manifest", "plan"]
    digest: str | None
    notes: tuple[str, ...]


class ChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity that is not the same; expected values of the fullest rank."""

    name: str
    group: Group
    unit: Unit
    about: str
    before: int | float | str | None
    after: int | float | str | None
    delta: Annotated[
        int | float | None, Meta(description="After less before; null where either is text or not known.")
    ]
    percent: Annotated[
        float | None, Meta(description="Of what was before; null where there is no delta or before is 0.")
    ]


class ThresholdDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An expression of --fail-if and what became of it."""

    expression: str
    outcome: Outcome
    why: str


class DiffDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one release to the other, what decides first. `same` are equal on both sides, `untold` known on
    neither."""

    schema_version: SchemaVersion
    kind: Literal["diff"]
    before: SideDocument
    after: SideDocument
    changes: tuple[ChangeDocument, ...]
    same: tuple[str, ...]
    untold: tuple[str, ...]
    conditions_gone: tuple[str, ...]
    conditions_new: tuple[str, ...]
    thresholds: tuple[ThresholdDocument, ...]


def diff_document(
    found: Difference, judged: tuple[Judged, ...], *, before: SideDocument, after: SideDocument
) -> DiffDocument:
    """The difference as it is published."""
    return DiffDocument(
        schema_version=SCHEMA_VERSION,
        kind="diff",
        before=before,
        after=after,
        changes=tuple(_change(change) for change in found.changes),
        same=found.same,
        untold=found.untold,
        conditions_gone=found.conditions_gone,
        conditions_new=found.conditions_new,
        thresholds=tuple(
            ThresholdDocument(expression=item.text, outcome=item.outcome, why=item.why) for item in judged
        ),
    )


def _change(change: Change) -> ChangeDocument:
    return ChangeDocument(
        name=change.name,
        group=change.group,
        unit=change.unit,
        about=change.about,
        before=change.before,
        after=change.after,
        delta=change.delta,
        percent=change.percent,
    )
