"""The published audit: what `vramledger audit --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SchemaVersion
from vramledger.manifest.audit import Audited, Policy, trips
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.finding import State

SCHEMA_VERSION = "1.0"


class CitedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What in the manifest says so, where that comes from, and when it was seen."""

    text: str
    source: str
    at: str | None


class AuditItemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the checklist."""

    name: str
    title: str
    state: State
    evidence: tuple[CitedDocument, ...]
    reason: Annotated[str, Meta(description="Why it is not passed; empty where it is.")]
    evidenced_by: Annotated[str, Meta(description="What would evidence it.")]
    is_required: Annotated[bool, Meta(description="Whether the policy wants it passed.")]


class AuditDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The checklist of one manifest. `trips` are names of items that the policy does not let through."""

    schema_version: SchemaVersion
    kind: Literal["audit"]
    file: str
    digest: str
    model_revision: str
    engine_revision: str
    plan_holds: Annotated[
        bool | None,
        Meta(description="The plan's own verdict, which no item judges; null where it cannot be told."),
    ]
    plan_summary: str
    policy: Policy
    passed: int
    failed: int
    not_evidenced: int
    trips: tuple[str, ...]
    items: tuple[AuditItemDocument, ...]
    notes: tuple[str, ...]


def audit_document(
    manifest: ManifestDocument,
    found: tuple[Audited, ...],
    *,
    policy: Policy,
    file: str,
    notes: tuple[str, ...] = (),
) -> AuditDocument:
    """The audit as it is published."""
    states = [item.finding.state for item in found]
    return AuditDocument(
        schema_version=SCHEMA_VERSION,
        kind="audit",
        file=file,
        digest=manifest.digest,
        model_revision=manifest.model_revision,
        engine_revision=manifest.engine_revision,
        plan_holds=manifest.plan.verdict.holds,
        plan_summary=manifest.plan.verdict.summary,
        policy=policy,
        passed=states.count(State.PASSED),
        failed=states.count(State.FAILED),
        not_evidenced=states.count(State.NOT_EVIDENCED),
        trips=tuple(item.item.name for item in trips(found, policy)),
        items=tuple(_item(item) for item in found),
        notes=notes,
    )


def _item(audited: Audited) -> AuditItemDocument:
    item, finding = audited.item, audited.finding
    return AuditItemDocument(
        name=item.name,
        title=item.title,
        state=finding.state,
        evidence=tuple(
            CitedDocument(text=cited.text, source=cited.source, at=cited.at) for cited in finding.evidence
        ),
        reason=finding.reason,
        evidenced_by=item.evidenced_by,
        is_required=audited.is_required,
    )
