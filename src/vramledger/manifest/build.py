"""A manifest from values: a plan, identities, and what was measured, declared and tested."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.documents.measurement import measurement_document
from vramledger.documents.plan import byte_interval, evidence_document, plan_document
from vramledger.errors import InputError, shorter
from vramledger.evidence import Evidence, calculated
from vramledger.ledger import ZERO, ByteRange, Phase, RankLedger
from vramledger.manifest.canonical import content_digest
from vramledger.manifest.declared import NOTHING_DECLARED, Facts
from vramledger.manifest.derived import gib, kib, missing
from vramledger.manifest.document import (
    SCHEMA_VERSION,
    BudgetDocument,
    FigureEvidence,
    KvTokens,
    ManifestDocument,
    RankFigures,
    SourceRecord,
)
from vramledger.manifest.experiment_result import ExperimentResult
from vramledger.manifest.identity import EngineIdentity, ModelIdentity
from vramledger.manifest.measured import (
    Seen,
    device_free,
    kv_pool,
    largest,
    least,
    of_ranks,
    runtime_peaks,
    steady_weights,
    utc,
)
from vramledger.manifest.model_facts import kv_facts, parameter_facts, quantization_facts
from vramledger.measurement import Measurement
from vramledger.models.checkpoint import Checkpoint
from vramledger.reconciliation.document import reconciliation_document
from vramledger.reconciliation.result import Reconciliation
from vramledger.reconciliation.settings import compare_settings

_OTHER_INSTANCE = frozenset({"engine", "architecture", "tp", "pp"})
_NO_DIGEST = "sha256:" + "0" * 64


class Given(Struct, frozen=True, kw_only=True):
    """What a manifest is made from. `at` is when, as "2026-11-30T01:02:03Z"; `made_by` this program and its version.

    Without a checkpoint what only it tells (quantisation, parameters, KV by heads) stays null.
    """

    plan: Plan
    model: ModelIdentity
    engine: EngineIdentity
    at: str
    made_by: str
    checkpoint: Checkpoint | None = None
    measurement: Measurement | None = None
    reconciliation: Reconciliation | None = None
    facts: Facts = NOTHING_DECLARED
    experiment: ExperimentResult | None = None
    sources: tuple[SourceRecord, ...] = ()


def build(given: Given) -> ManifestDocument:
    """The manifest, sealed with its digest: equal values give equal bytes.

    Raises InputError where plan, checkpoint and measurement speak of different things: another engine, another number of
    ranks, another checkpoint; what may differ without being another release is told in `disagreements`.
    """
    plan, measurement = given.plan, given.measurement
    if given.checkpoint is not None:
        _refuse_another_checkpoint(plan, given.checkpoint)
    if given.reconciliation is not None:
        _refuse_another_reconciliation(plan, given.reconciliation)
    said = () if measurement is None else _compare(plan, measurement)
    if given.experiment is not None:
        said = (*said, *compare_experiment(plan, given.experiment))
    pool = plan.kv_pool
    weights = {
        rank.ranks: () if measurement is None else steady_weights(plan, measurement, rank)
        for rank in plan.ranks
    }
    peaks = () if measurement is None else runtime_peaks(plan, measurement)
    free = () if measurement is None else device_free(measurement)
    ranks = tuple(_rank(rank, plan, weights[rank.ranks], peaks, free) for rank in plan.ranks)
    weight = largest(seen for found in weights.values() for seen in found)
    peak, room = largest(peaks), least(free)
    measured_pool = None if measurement is None else kv_pool(measurement)
    raw = plan.ranks[0].weights if plan.ranks else None
    headroom = min((rank.headroom_bytes.expected for rank in ranks), default=None)
    raw_bytes = None if raw is None else raw.disk_bytes
    pool_bytes = None if pool is None else pool.bytes.expected
    token_bytes = None if pool is None else pool.bytes_per_token
    document = ManifestDocument(
        schema_version=SCHEMA_VERSION,
        kind="manifest",
        digest=_NO_DIGEST,
        created_at=given.at,
        made_by=given.made_by,
        model_revision=given.model.revision,
        engine_revision=given.engine.text,
        tp=plan.inputs.tp,
        pp=plan.inputs.pp,
        dp=plan.inputs.dp,
        ep=plan.inputs.ep,
        weight_format=plan.inputs.quantization,
        kv_format=None if pool is None else pool.dtype,
        raw_weight_gib=gib(raw_bytes),
        raw_weight_bytes=raw_bytes,
        measured_weight_steady_gib_per_rank=gib(_bytes(weight)),
        measured_weight_steady_bytes_per_rank=_bytes(weight),
        measured_runtime_peak_gib_per_rank=gib(_bytes(peak)),
        measured_runtime_peak_bytes_per_rank=_bytes(peak),
        kv_kib_per_token_per_rank=kib(token_bytes),
        kv_bytes_per_token_per_rank=token_bytes,
        kv_pool_gib_per_rank=gib(pool_bytes),
        kv_pool_bytes_per_rank=pool_bytes,
        headroom_gib_per_rank=gib(headroom),
        headroom_bytes_per_rank=headroom,
        measured_kv_pool_gib_per_rank=gib(_bytes(measured_pool)),
        measured_kv_pool_bytes_per_rank=_bytes(measured_pool),
        measured_headroom_gib_per_rank=gib(_bytes(room)),
        measured_headroom_bytes_per_rank=_bytes(room),
        not_evidenced=(),
        evidence=_evidence(
            plan,
            raw.disk_evidence if raw is not None else None,
            (
                ("measured_weight_steady_bytes_per_rank", weight),
                ("measured_runtime_peak_bytes_per_rank", peak),
                ("measured_kv_pool_bytes_per_rank", measured_pool),
                ("measured_headroom_bytes_per_rank", room),
            ),
        ),
        sources=given.sources,
        model=given.model,
        engine=given.engine,
        quantization=None if given.checkpoint is None else quantization_facts(given.checkpoint),
        parameters=None if given.checkpoint is None else parameter_facts(given.checkpoint),
        kv=None
        if given.checkpoint is None or pool is None
        else kv_facts(given.checkpoint.model, pool.dtype, plan.inputs.tp),
        kv_tokens=_tokens(plan, measurement),
        per_rank=ranks,
        budget=_budget(plan),
        conditions=plan.verdict.conditions,
        disagreements=said,
        adapters=given.facts.adapters,
        prefix_sharing_boundary=given.facts.prefix_sharing_boundary,
        tool_wait_policy=given.facts.tool_wait_policy,
        admission=given.facts.admission,
        communication_overlap=given.facts.communication_overlap,
        tests=given.facts.tests,
        capacity_results=given.facts.capacity_results,
        plan=plan_document(plan),
        measurement=None if measurement is None else measurement_document(measurement),
        reconciliation=None
        if given.reconciliation is None
        else reconciliation_document(given.reconciliation),
        experiment=given.experiment,
    )
    return sealed(replace(document, not_evidenced=missing(document)))


def sealed(document: ManifestDocument) -> ManifestDocument:
    """The document with the digest of its content. Raises InputError for a number that has no canonical form."""
    try:
        return replace(document, digest=content_digest(plain(document)))
    except ValueError as problem:
        raise InputError(f"the manifest cannot be sealed: {problem}", reason=str(problem)) from None


def plain(document: ManifestDocument) -> dict[str, Any]:
    """The document as JSON values."""
    found: dict[str, Any] = msgspec.to_builtins(document, str_keys=True)
    return found


def _bytes(seen: Seen | None) -> int | None:
    return None if seen is None else seen.bytes


def _refuse_another_checkpoint(plan: Plan, checkpoint: Checkpoint) -> None:
    """An engine may load the model in another format than it is stored in (a conversion to GGUF, quantisation while loading);
    where the format is the same, so are the files' bytes."""
    pairs: list[tuple[str, object, object]] = [
        ("architecture", plan.inputs.architecture, checkpoint.model.architecture)
    ]
    if plan.inputs.quantization == checkpoint.quantization and plan.ranks:
        pairs.append(("bytes on disk", plan.ranks[0].weights.disk_bytes, checkpoint.disk_bytes))
    for name, planned, found in pairs:
        if planned != found:
            raise InputError(
                f"the plan is of another checkpoint: its {name} is {planned}, the model's is {found}; plan this model anew",
                planned=planned,
                found=found,
            )


def _refuse_another_reconciliation(plan: Plan, found: Reconciliation) -> None:
    inputs = plan.inputs
    for name, planned, reconciled in (
        ("model", inputs.model, found.model),
        ("engine", inputs.engine, found.engine),
        ("engine version", inputs.engine_version, found.engine_version),
        ("device", inputs.device, found.device),
    ):
        if planned != reconciled:
            raise InputError(
                f"the reconciliation is of another plan: its {name} is {shorter(reconciled)}, this plan's {shorter(planned)}",
                planned=shorter(planned),
                reconciled=shorter(reconciled),
            )


def _compare(plan: Plan, measurement: Measurement) -> tuple[str, ...]:
    """Where the measured instance is not the planned one."""
    said: list[str] = []
    for item in compare_settings(plan, measurement).differences:
        if item.name in _OTHER_INSTANCE:
            raise InputError(
                f"the measurement is of another instance: {item.name} is {shorter(item.measured)}, the plan's "
                f"{shorter(item.planned)}; plan with what was measured",
                name=item.name,
                planned=shorter(item.planned),
                measured=shorter(item.measured),
            )
        said.append(f"{item.name}: planned {item.planned}, measured {item.measured}")
    return tuple(said)


def compare_experiment(plan: Plan, found: ExperimentResult) -> tuple[str, ...]:
    """Where the engine that the experiment was made on is not the planned one. Raises InputError for another engine."""
    inputs, pool = plan.inputs, plan.kv_pool
    if found.engine is not None and found.engine != inputs.engine:
        raise InputError(
            f"the experiment is of another instance: engine is {shorter(found.engine)}, the plan's {shorter(inputs.engine)}; "
            "plan with what was asked",
            name="engine",
            planned=shorter(inputs.engine),
            measured=shorter(found.engine),
        )
    pairs: list[tuple[str, object, object]] = [
        ("engine version", inputs.engine_version, found.engine_version),
        ("context_len", None if pool is None else pool.context_len, found.context_len),
    ]
    said = [
        f"{name}: planned {planned}, in the experiment {seen}"
        for name, planned, seen in pairs
        if planned is not None and seen is not None and planned != seen
    ]
    told = found.pool
    if told is not None and told.agrees is False and pool is not None:
        said.append(
            f"KV pool: planned {pool.tokens.low:,} to {pool.tokens.high:,} tokens, in the experiment "
            f"{'not told' if told.tokens is None else format(told.tokens, ',')}"
        )
    return tuple(said)


def _rank(
    rank: RankLedger, plan: Plan, weights: tuple[Seen, ...], peaks: tuple[Seen, ...], free: tuple[Seen, ...]
) -> RankFigures:
    only = len(plan.ranks) == 1
    heaviest = largest(weights)
    weight = _bytes(heaviest)
    peak = _bytes(largest(of_ranks(peaks, rank.ranks, only=only)))
    room = _bytes(least(of_ranks(free, rank.ranks, only=only)))
    held = occupied(rank)
    return RankFigures(
        ranks=rank.ranks,
        weight_steady_bytes=byte_interval(rank.weights.device_bytes),
        runtime_peak_bytes=byte_interval(held),
        headroom_bytes=byte_interval(ByteRange.exact(rank.device_total_bytes) - held),
        measured_weight_steady_bytes=weight,
        measured_weight_steady_gib=gib(weight),
        measured_weight_steady_range=None
        if heaviest is None or heaviest.range is None
        else byte_interval(heaviest.range),
        measured_runtime_peak_bytes=peak,
        measured_runtime_peak_gib=gib(peak),
        measured_headroom_bytes=room,
        measured_headroom_gib=gib(room),
        measured_ranks=tuple(
            sorted({number for seen in weights for number in seen.ranks} & set(rank.ranks))
            or (rank.ranks if weights and len(rank.ranks) == 1 else ())
        ),
    )


def occupied(rank: RankLedger) -> ByteRange:
    """The most that a phase occupies, end by end."""
    most = ZERO
    for phase in Phase:
        most = most.upper(rank.occupied(phase))
    return most


def _budget(plan: Plan) -> BudgetDocument:
    held = {rank.ranks: occupied(rank) for rank in plan.ranks}
    fullest = max(plan.ranks, key=lambda rank: held[rank.ranks].expected, default=None)
    if fullest is None:
        raise InputError("the plan has no ranks; a manifest is of an instance that runs on a device")
    binding = max(Phase, key=lambda phase: fullest.occupied(phase).expected)
    return BudgetDocument(
        budget_bytes=plan.budget_bytes,
        budget_gib=gib(plan.budget_bytes),
        device_total_bytes=plan.inputs.device_total_bytes,
        device_total_gib=gib(plan.inputs.device_total_bytes),
        binding_phase=binding,
        occupied_bytes=byte_interval(fullest.occupied(binding)),
    )


def _tokens(plan: Plan, measurement: Measurement | None) -> KvTokens | None:
    pool = plan.kv_pool
    if pool is None:
        return None
    seen = () if measurement is None else measurement.pools
    tokens = [item.tokens.expected for item in seen if item.tokens is not None]
    blocks = [item.num_blocks.expected for item in seen if item.num_blocks is not None]
    return KvTokens(
        logical=pool.tokens.expected,
        physical=pool.num_blocks.expected * pool.block_size,
        num_blocks=pool.num_blocks.expected,
        block_size=pool.block_size,
        rule=pool.tokens_rule,
        measured_logical=min(tokens, default=None),
        measured_num_blocks=min(blocks, default=None),
    )


def _evidence(
    plan: Plan, disk: Evidence | None, measured: tuple[tuple[str, Seen | None], ...]
) -> tuple[FigureEvidence, ...]:
    rules = f"{plan.inputs.engine} {plan.inputs.engine_version}, rules of vramledger"
    found: dict[str, tuple[Evidence, str | None]] = {
        "headroom_bytes_per_rank": (
            calculated(rules, "device total - most occupied in a phase, of the fullest rank"),
            None,
        )
    }
    if disk is not None:
        found["raw_weight_bytes"] = (disk, None)
    if plan.kv_pool is not None:
        found["kv_bytes_per_token_per_rank"] = (
            calculated(rules, "kv_pool.bytes_per_token of the plan"),
            None,
        )
        found["kv_pool_bytes_per_rank"] = (calculated(rules, "kv_pool.bytes of the plan, expected"), None)
    for name, seen in measured:
        if seen is not None:
            found[name] = (seen.evidence, utc(seen.at_s))
    return tuple(
        FigureEvidence(figure=name, evidence=evidence_document(evidence), at=at)
        for name, (evidence, at) in sorted(found.items())
    )
