"""The published result of a release gate: what `vramledger gate --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SchemaVersion
from vramledger.manifest.gate_reason import Gated, Kept

SCHEMA_VERSION = "1.0"


class GateSideDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One of the manifests that were compared."""

    file: str
    digest: str
    model_revision: str
    engine_revision: str
    notes: tuple[str, ...]


class ReasonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the policy and what became of it."""

    section: Annotated[str, Meta(description="Where the policy has it: keep, fail_if, audit or experiment.")]
    rule: str
    kept: Kept
    why: str
    decides: Annotated[bool, Meta(description="Whether the gate stays shut for it.")]


class GateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a release may go out. `passes` is null where nothing fell short and something that decides cannot be told."""

    schema_version: SchemaVersion
    kind: Literal["gate"]
    passes: bool | None
    policy: Annotated[str, Meta(description="The file of the policy; empty: the usual one.")]
    old: GateSideDocument | None
    new: GateSideDocument
    reasons: tuple[ReasonDocument, ...]
    notes: tuple[str, ...]


def gate_document(
    found: Gated, *, policy: str, old: GateSideDocument | None, new: GateSideDocument
) -> GateDocument:
    """The gate as it is published."""
    return GateDocument(
        schema_version=SCHEMA_VERSION,
        kind="gate",
        passes=found.passes,
        policy=policy,
        old=old,
        new=new,
        reasons=tuple(
            ReasonDocument(
                section=reason.section,
                rule=reason.rule,
                kept=reason.kept,
                why=reason.why,
                decides=reason.decides,
            )
            for reason in found.reasons
        ),
        notes=found.notes,
    )
