"""The published manifest: what `vramledger manifest` writes.

Bytes, tokens and blocks are whole numbers; every GiB and KiB stands beside its bytes and is just those divided. What
was not measured is null and named in `not_evidenced`. A field is added with a new minor version; one that
changes its meaning or goes needs a new major version and a new schema file. A reader of an older minor version
leaves what it does not know alone; the digest covers it all the same.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.measurement import MeasurementDocument
from vramledger.documents.plan import ByteInterval, EvidenceDocument, PlanDocument
from vramledger.ledger import Phase
from vramledger.manifest.declared import (
    AdapterRevision,
    AdmissionPolicy,
    CapacityResult,
    CommunicationOverlap,
    PrefixSharingBoundary,
    Time,
    ToolWaitPolicy,
    Trial,
)
from vramledger.manifest.experiment_result import ExperimentResult
from vramledger.manifest.identity import EngineIdentity, ModelIdentity
from vramledger.manifest.model_facts import KvFacts, ParameterFacts, QuantizationFacts
from vramledger.reconciliation.document import ReconciliationDocument

SCHEMA_VERSION = "1.1"

Gib = Annotated[float | None, Meta(description="The bytes beside it divided by 2^30, exactly.")]
Kib = Annotated[float | None, Meta(description="The bytes beside it divided by 2^10, exactly.")]
Bytes = Annotated[int | None, Meta(description="Whole bytes; null where they are not known.")]
MeasuredBytes = Annotated[int | None, Meta(description="Whole bytes; null where nobody measured them.")]


class FigureEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """How one figure of the manifest is known, and when it was seen (null for what is calculated or undated)."""

    figure: str
    evidence: EvidenceDocument
    at: str | None


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A file or an address that the manifest was made from, with its digest and the time it speaks of."""

    what: Literal["plan", "measurement", "reconciliation", "facts", "capacity", "experiment"]
    name: str
    sha256: str | None
    from_: Annotated[str | None, Meta(description="UTC.")] = msgspec.field(name="from")
    until: str | None


class BudgetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine may use of a device, and what the fullest phase of the fullest rank holds."""

    budget_bytes: int
    budget_gib: Gib
    device_total_bytes: int
    device_total_gib: Gib
    binding_phase: Phase
    occupied_bytes: ByteInterval


class RankFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of rank: what it should hold of the weights and at its peak, what is left, and what was measured of its
    members (the largest of them; of what is free, the least)."""

    ranks: tuple[int, ...]
    weight_steady_bytes: ByteInterval
    runtime_peak_bytes: ByteInterval
    headroom_bytes: ByteInterval
    measured_weight_steady_bytes: MeasuredBytes
    measured_weight_steady_gib: Gib
    measured_weight_steady_range: Annotated[
        ByteInterval | None, Meta(description="As wide as the rounding of what was printed.")
    ]
    measured_runtime_peak_bytes: MeasuredBytes
    measured_runtime_peak_gib: Gib
    measured_headroom_bytes: MeasuredBytes
    measured_headroom_gib: Gib
    measured_ranks: Annotated[
        tuple[int, ...],
        Meta(description="Ranks whose weights were measured, as far as the source names them."),
    ]


class KvTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Two counts that are never one: `logical` tokens as the engine prints them by its own rule, and `physical` slots,
    blocks times tokens a block."""

    logical: int
    physical: int
    num_blocks: int
    block_size: int
    rule: str
    measured_logical: int | None
    measured_num_blocks: int | None


class ManifestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A release: a model revision, an engine revision and a plan, with what was measured of it.

    Figures per rank are those of the fullest rank, headroom that of the rank with the least. A name that begins with
    `measured_` holds a measurement or null, never a prediction.
    """

    schema_version: Annotated[
        str, Meta(description="Major and minor version of this document.", pattern=r"^1\.\d+$")
    ]
    kind: Literal["manifest"]
    digest: Annotated[
        str,
        Meta(
            description="SHA-256 over the canonical form (RFC 8785) of this document without this field.",
            pattern=r"^sha256:[0-9a-f]{64}$",
        ),
    ]
    created_at: Time
    made_by: str

    model_revision: str
    engine_revision: str
    tp: int
    pp: int
    dp: int
    ep: int
    weight_format: str
    kv_format: str | None

    raw_weight_gib: Gib
    raw_weight_bytes: Bytes
    measured_weight_steady_gib_per_rank: Gib
    measured_weight_steady_bytes_per_rank: MeasuredBytes
    measured_runtime_peak_gib_per_rank: Gib
    measured_runtime_peak_bytes_per_rank: MeasuredBytes
    kv_kib_per_token_per_rank: Kib
    kv_bytes_per_token_per_rank: Bytes
    kv_pool_gib_per_rank: Gib
    kv_pool_bytes_per_rank: Bytes
    headroom_gib_per_rank: Gib
    headroom_bytes_per_rank: Bytes
    measured_kv_pool_gib_per_rank: Gib
    measured_kv_pool_bytes_per_rank: MeasuredBytes
    measured_headroom_gib_per_rank: Gib
    measured_headroom_bytes_per_rank: MeasuredBytes

    not_evidenced: Annotated[
        tuple[str, ...], Meta(description="What this manifest has no evidence for: its null fields.")
    ]
    evidence: tuple[FigureEvidence, ...]
    sources: tuple[SourceRecord, ...]

    model: ModelIdentity
    engine: EngineIdentity
    quantization: QuantizationFacts | None
    parameters: ParameterFacts | None
    kv: KvFacts | None
    kv_tokens: KvTokens | None
    per_rank: tuple[RankFigures, ...]
    budget: BudgetDocument
    conditions: tuple[str, ...]
    disagreements: Annotated[
        tuple[str, ...], Meta(description="Where the measured instance was not the planned one.")
    ]

    adapters: tuple[AdapterRevision, ...] | None
    prefix_sharing_boundary: PrefixSharingBoundary | None
    tool_wait_policy: ToolWaitPolicy | None
    admission: AdmissionPolicy | None
    communication_overlap: CommunicationOverlap | None
    tests: tuple[Trial, ...]
    capacity_results: tuple[CapacityResult, ...]

    plan: PlanDocument
    measurement: MeasurementDocument | None
    reconciliation: ReconciliationDocument | None

    experiment: Annotated[
        ExperimentResult | None,
        Meta(description="What an experiment on the live engine found. Since version 1.1."),
    ] = None
