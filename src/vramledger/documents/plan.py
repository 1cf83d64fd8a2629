"""The published plan: what `vramledger plan --json` writes, and the way from a Plan to it.

Bytes, tokens and blocks are whole numbers. A field is added with a new minor version; one that changes its
meaning or goes needs a new major version and a new schema file.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.answer import Plan, PlanInputs
from vramledger.evidence import Evidence, EvidenceKind
from vramledger.ledger import ByteRange, Entry, Lifetime, Owner, Phase, RankLedger
from vramledger.pool import FloatRange, IntRange, KvPool
from vramledger.verdict import Verdict

SCHEMA_VERSION = "1.2"

SchemaVersion = Annotated[
    str, Meta(description="Major and minor version of this document.", pattern=r"^1\.\d+$")
]
ByteCount = Annotated[int, Meta(description="Whole bytes.")]


class ByteInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Whole bytes: at least, expected, at most. An exact figure has all three equal."""

    low: int
    expected: int
    high: int


class CountInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A count: at least, expected, at most."""

    low: int
    expected: int
    high: int


class RatioInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio: at least, expected, at most."""

    low: float
    expected: float
    high: float


class EvidenceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a number is known: `source` names the rule or observation, `formula` the arithmetic."""

    kind: EvidenceKind
    source: str
    formula: str


class EntryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a rank's ledger."""

    owner: Owner
    name: str
    lifetime: Lifetime
    phases: Annotated[tuple[Phase, ...], Meta(description="Phases in which the bytes are held.")]
    bytes: ByteInterval
    evidence: EvidenceDocument
    inside_budget: Annotated[
        bool, Meta(description="Whether the engine charges the bytes against its share of the device.")
    ]
    is_remainder: Annotated[
        bool, Meta(description="Whether the entry takes what the other charged ones leave of the budget.")
    ]


class PeakDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All entries alive together in one phase: their sum end by end, and what they occupy given that a
    remainder is large only when the other charged entries are small."""

    phase: Phase
    bytes: ByteInterval
    occupied: ByteInterval


class WeightsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Three figures that are never one: all weight files, host memory while a rank loads, steady on the device."""

    disk_bytes: ByteCount
    disk_evidence: EvidenceDocument
    host_peak_bytes: ByteInterval
    host_evidence: EvidenceDocument
    device_bytes: ByteInterval


class RankDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger of ranks that are alike."""

    ranks: Annotated[tuple[int, ...], Meta(description="World ranks that share this ledger, in order.")]
    device_total_bytes: ByteCount
    entries: tuple[EntryDocument, ...]
    peaks: tuple[PeakDocument, ...]
    binding_phase: Annotated[Phase, Meta(description="The phase with the largest expected peak.")]
    weights: WeightsDocument


class KvPartDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of a group that cache the same thing."""

    kind: str
    num_layers: int
    page_bytes: Annotated[int, Meta(description="Bytes of one block of one layer on one rank.")]


class KvGroupDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that share block ids."""

    kind: str
    num_layers: int
    padding_layers: int
    block_size: Annotated[int, Meta(description="Tokens in a block of this group.")]
    page_bytes: Annotated[int, Meta(description="Bytes of one block of one layer on one rank.")]
    blocks_per_request: Annotated[
        int, Meta(description="Blocks a request of context_len tokens may hold at most.")
    ]
    parts: Annotated[
        tuple[KvPartDocument, ...],
        Meta(description="What the layers cache; kind and page_bytes above are those of the first part."),
    ]
    pool_blocks: Annotated[
        CountInterval | None, Meta(description="Blocks of the group's own pool; null where groups share one.")
    ]
    window_tokens: Annotated[
        int | None, Meta(description="Window or chunk of attention that has one; null where it has none.")
    ] = None
    keeps_states: Annotated[
        bool, Meta(description="Whether states at block boundaries serve later requests of the same prefix.")
    ] = False
    blocks_per_unit: Annotated[
        int, Meta(description="Blocks of this group that one block of the pool is cut into.")
    ] = 1


class ConversionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One way from bytes to requests of context_len tokens."""

    bytes_per_request: ByteCount
    concurrency: RatioInterval


class KvPoolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The KV pool of one engine instance; bytes are those of one rank."""

    bytes: ByteInterval
    dtype: str
    block_size: Annotated[int, Meta(description="Tokens in a block, as the engine prints it.")]
    bytes_per_block: Annotated[int, Meta(description="Bytes of one block of the pool over all its layers.")]
    bytes_per_token: Annotated[
        int,
        Meta(description="Bytes one more token takes in every layer that keeps it, constant state apart."),
    ]
    state_bytes_per_sequence: Annotated[int, Meta(description="Constant state of recurrent layers.")]
    num_blocks: CountInterval
    tokens: Annotated[CountInterval, Meta(description="Tokens as this engine version prints them.")]
    tokens_rule: Annotated[str, Meta(description="How this engine version turns blocks into tokens.")]
    max_concurrency: Annotated[RatioInterval, Meta(description="As this engine version prints it.")]
    context_len: Annotated[int, Meta(description="Tokens of the requests that the figures speak of.")]
    longest_context: Annotated[CountInterval, Meta(description="Longest request that fits alone.")]
    groups: tuple[KvGroupDocument, ...]
    admission: Annotated[ConversionDocument, Meta(description="What the engine reserves at most a request.")]
    steady: Annotated[ConversionDocument, Meta(description="What a request holds once windows have slid.")]


class VerdictDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`holds` is true under `conditions`, false by at least `shortfall_bytes`, or null without `missing`."""

    holds: bool | None
    summary: str
    conditions: tuple[str, ...]
    shortfall_bytes: ByteCount
    remedies: Annotated[tuple[str, ...], Meta(description="What would close the shortfall, best first.")]
    missing: Annotated[tuple[str, ...], Meta(description="What would have to be known.")]
    assumed: Annotated[tuple[str, ...], Meta(description="Entries that rest on a default nobody checked.")]


class InputsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The question in the terms it was answered in."""

    model: str
    architecture: str
    quantization: str
    engine: str
    engine_version: str
    device: str
    device_total_bytes: ByteCount
    tp: int
    pp: int
    dp: int
    ep: int
    settings: Annotated[
        dict[str, str | int | float | bool],
        Meta(description="The engine's own names and values, defaults filled in."),
    ]


class StartDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How a person starts the engine with the flags that the plan was given, and no others."""

    command: Annotated[
        str, Meta(description="For a shell; it writes a file first where the engine reads flags from one.")
    ]
    left_out: Annotated[
        tuple[str, ...], Meta(description="Flags of the plan that the command does not carry, and why.")
    ]


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A plan: ledgers by kind of rank, the KV pool, the verdict."""

    schema_version: SchemaVersion
    kind: Literal["plan"]
    inputs: InputsDocument
    budget_bytes: Annotated[int, Meta(description="What the engine's share allots on one device.")]
    ranks: tuple[RankDocument, ...]
    host: Annotated[
        tuple[EntryDocument, ...],
        Meta(description="What the instance keeps in host memory, over its processes."),
    ]
    kv_pool: KvPoolDocument | None
    verdict: VerdictDocument
    printed: Annotated[
        tuple[str, ...], Meta(description="Memory lines of the engine's start-up log, expected values.")
    ]
    notes: tuple[str, ...]
    start: Annotated[
        StartDocument | msgspec.UnsetType, Meta(description="There where the plan was asked for with flags.")
    ] = msgspec.UNSET


def plan_document(plan: Plan, *, start: StartDocument | None = None) -> PlanDocument:
    """The plan as it is published, with how its engine is started where that is known."""
    return PlanDocument(
        schema_version=SCHEMA_VERSION,
        kind="plan",
        inputs=_inputs(plan.inputs),
        budget_bytes=plan.budget_bytes,
        ranks=tuple(_rank(rank) for rank in plan.ranks),
        host=tuple(_entry(entry) for entry in plan.host),
        kv_pool=_pool(plan.kv_pool) if plan.kv_pool is not None else None,
        verdict=_verdict(plan.verdict),
        printed=plan.printed,
        notes=plan.notes,
        start=msgspec.UNSET if start is None else start,
    )


def _inputs(inputs: PlanInputs) -> InputsDocument:
    return InputsDocument(
        model=inputs.model,
        architecture=inputs.architecture,
        quantization=inputs.quantization,
        engine=inputs.engine,
        engine_version=inputs.engine_version,
        device=inputs.device,
        device_total_bytes=inputs.device_total_bytes,
        tp=inputs.tp,
        pp=inputs.pp,
        dp=inputs.dp,
        ep=inputs.ep,
        settings=dict(inputs.settings),
    )


def _rank(rank: RankLedger) -> RankDocument:
    return RankDocument(
        ranks=rank.ranks,
        device_total_bytes=rank.device_total_bytes,
        entries=tuple(_entry(entry) for entry in rank.entries),
        peaks=tuple(
            PeakDocument(
                phase=peak.phase, bytes=byte_interval(peak.bytes), occupied=byte_interval(peak.occupied)
            )
            for peak in rank.peaks
        ),
        binding_phase=rank.binding_phase,
        weights=WeightsDocument(
            disk_bytes=rank.weights.disk_bytes,
            disk_evidence=evidence_document(rank.weights.disk_evidence),
            host_evidence=evidence_document(rank.weights.host_evidence),
            host_peak_bytes=byte_interval(rank.weights.host_peak_bytes),
            device_bytes=byte_interval(rank.weights.device_bytes),
        ),
    )


def _entry(entry: Entry) -> EntryDocument:
    return EntryDocument(
        owner=entry.owner,
        name=entry.name,
        lifetime=entry.lifetime,
        phases=tuple(phase for phase in Phase if phase in entry.phases),
        bytes=byte_interval(entry.bytes),
        evidence=evidence_document(entry.evidence),
        inside_budget=entry.inside_budget,
        is_remainder=entry.is_remainder,
    )


def _pool(pool: KvPool) -> KvPoolDocument:
    return KvPoolDocument(
        bytes=ByteInterval(low=pool.bytes.low, expected=pool.bytes.expected, high=pool.bytes.high),
        dtype=pool.dtype,
        block_size=pool.block_size,
        bytes_per_block=pool.bytes_per_block,
        bytes_per_token=pool.bytes_per_token,
        state_bytes_per_sequence=pool.state_bytes_per_sequence,
        num_blocks=_counts(pool.num_blocks),
        tokens=_counts(pool.tokens),
        tokens_rule=pool.tokens_rule,
        max_concurrency=_ratios(pool.max_concurrency),
        context_len=pool.context_len,
        longest_context=_counts(pool.longest_context),
        groups=tuple(
            KvGroupDocument(
                kind=group.kind,
                num_layers=group.num_layers,
                padding_layers=group.padding_layers,
                block_size=group.block_size,
                page_bytes=group.page_bytes,
                blocks_per_request=group.blocks_per_request,
                parts=tuple(
                    KvPartDocument(kind=part.kind, num_layers=part.num_layers, page_bytes=part.page_bytes)
                    for part in group.parts
                ),
                pool_blocks=None if group.pool_blocks is None else _counts(group.pool_blocks),
                window_tokens=group.window_tokens,
                keeps_states=group.keeps_states,
                blocks_per_unit=group.blocks_per_unit,
            )
            for group in pool.groups
        ),
        admission=ConversionDocument(
            bytes_per_request=pool.admission_bytes_per_request, concurrency=_ratios(pool.max_concurrency)
        ),
        steady=ConversionDocument(
            bytes_per_request=pool.steady_bytes_per_request, concurrency=_ratios(pool.steady_concurrency)
        ),
    )


def _verdict(verdict: Verdict) -> VerdictDocument:
    return VerdictDocument(
        holds=verdict.holds,
        summary=verdict.summary,
        conditions=verdict.conditions,
        shortfall_bytes=verdict.shortfall_bytes,
        remedies=verdict.remedies,
        missing=verdict.missing,
        assumed=verdict.assumed,
    )


def evidence_document(evidence: Evidence) -> EvidenceDocument:
    return EvidenceDocument(kind=evidence.kind, source=evidence.source, formula=evidence.formula)


def byte_interval(size: ByteRange) -> ByteInterval:
    return ByteInterval(low=size.low, expected=size.expected, high=size.high)


def _counts(count: IntRange) -> CountInterval:
    return CountInterval(low=count.low, expected=count.expected, high=count.high)


def _ratios(ratio: FloatRange) -> RatioInterval:
    return RatioInterval(low=ratio.low, expected=ratio.expected, high=ratio.high)
