"""A published plan read back into the values it was made from."""

from __future__ import annotations

from vramledger.answer import Plan, PlanInputs
from vramledger.documents.decoding import read_document
from vramledger.documents.plan import (
    ByteInterval,
    CountInterval,
    EntryDocument,
    EvidenceDocument,
    InputsDocument,
    KvGroupDocument,
    KvPoolDocument,
    PlanDocument,
    RankDocument,
    RatioInterval,
    VerdictDocument,
)
from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Entry, RankLedger, WeightFigures
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPart, KvPool
from vramledger.verdict import Verdict


def read_plan(text: bytes, *, where: str) -> Plan:
    """The plan that `vramledger plan --json` wrote; `where` names it in errors.

    Raises InputError for what is not JSON, is another document, is of a newer major version or holds figures that
    cannot be (a range upside down, negative bytes).
    """
    return read_document(
        text, PlanDocument, plan_of, where=where, name="plan", command="vramledger plan MODEL --json"
    )


def plan_of(document: PlanDocument) -> Plan:
    """The plan behind a document: `plan_document` undone. Raises ValueError for figures that cannot be."""
    return Plan(
        inputs=_inputs(document.inputs),
        budget_bytes=document.budget_bytes,
        ranks=tuple(_rank(rank) for rank in document.ranks),
        kv_pool=None if document.kv_pool is None else _pool(document.kv_pool),
        verdict=_verdict(document.verdict),
        host=tuple(_entry(entry) for entry in document.host),
        printed=document.printed,
        notes=document.notes,
    )


def _inputs(inputs: InputsDocument) -> PlanInputs:
    return PlanInputs(
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
        settings=tuple(inputs.settings.items()),
    )


def _rank(rank: RankDocument) -> RankLedger:
    return RankLedger(
        ranks=rank.ranks,
        entries=tuple(_entry(entry) for entry in rank.entries),
        weights=WeightFigures(
            disk_bytes=rank.weights.disk_bytes,
            disk_evidence=evidence_of(rank.weights.disk_evidence),
            host_peak_bytes=byte_range(rank.weights.host_peak_bytes),
            host_evidence=evidence_of(rank.weights.host_evidence),
            device_bytes=byte_range(rank.weights.device_bytes),
        ),
        device_total_bytes=rank.device_total_bytes,
    )


def _entry(entry: EntryDocument) -> Entry:
    return Entry(
        owner=entry.owner,
        name=entry.name,
        lifetime=entry.lifetime,
        phases=frozenset(entry.phases),
        bytes=byte_range(entry.bytes),
        evidence=evidence_of(entry.evidence),
        inside_budget=entry.inside_budget,
        is_remainder=entry.is_remainder,
    )


def _pool(pool: KvPoolDocument) -> KvPool:
    return KvPool(
        bytes=IntRange(pool.bytes.low, pool.bytes.expected, pool.bytes.high),
        groups=tuple(_group(group) for group in pool.groups),
        bytes_per_block=pool.bytes_per_block,
        bytes_per_token=pool.bytes_per_token,
        state_bytes_per_sequence=pool.state_bytes_per_sequence,
        block_size=pool.block_size,
        num_blocks=_counts(pool.num_blocks),
        tokens=_counts(pool.tokens),
        max_concurrency=_ratios(pool.max_concurrency),
        context_len=pool.context_len,
        longest_context=_counts(pool.longest_context),
        tokens_rule=pool.tokens_rule,
        admission_bytes_per_request=pool.admission.bytes_per_request,
        steady_bytes_per_request=pool.steady.bytes_per_request,
        steady_concurrency=_ratios(pool.steady.concurrency),
        dtype=pool.dtype,
    )


def _group(group: KvGroupDocument) -> KvGroup:
    return KvGroup(
        kind=group.kind,
        num_layers=group.num_layers,
        block_size=group.block_size,
        page_bytes=group.page_bytes,
        blocks_per_request=group.blocks_per_request,
        padding_layers=group.padding_layers,
        parts=tuple(
            KvPart(kind=p.kind, num_layers=p.num_layers, page_bytes=p.page_bytes) for p in group.parts
        ),
        pool_blocks=None if group.pool_blocks is None else _counts(group.pool_blocks),
        window_tokens=group.window_tokens,
        keeps_states=group.keeps_states,
        blocks_per_unit=group.blocks_per_unit,
    )


def _verdict(verdict: VerdictDocument) -> Verdict:
    return Verdict(
        holds=verdict.holds,
        summary=verdict.summary,
        conditions=verdict.conditions,
        shortfall_bytes=verdict.shortfall_bytes,
        remedies=verdict.remedies,
        missing=verdict.missing,
        assumed=verdict.assumed,
    )


def evidence_of(evidence: EvidenceDocument) -> Evidence:
    return Evidence(kind=evidence.kind, source=evidence.source, formula=evidence.formula)


def byte_range(size: ByteInterval) -> ByteRange:
    return ByteRange(size.low, size.expected, size.high)


def _counts(count: CountInterval) -> IntRange:
    return IntRange(count.low, count.expected, count.high)


def _ratios(ratio: RatioInterval) -> FloatRange:
    return FloatRange(ratio.low, ratio.expected, ratio.high)
