"""What a simulated answer holds under: the pool, the scheduler, how long a step takes, who sends what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from vramledger.answer import Plan
from vramledger.documents.plan import EvidenceDocument, evidence_document
from vramledger.evidence import EvidenceKind
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.report.text import Line, wrapped
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.summary import capacity_tokens, tokens_a_block
from vramledger.units import counted, format_bytes
from vramledger.workload.request import WorkloadHeader


class StepModelDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How long a step takes: overhead + max(floor, tokens x token) + decode sequences x decode_seq + cached tokens read x
    kv_token + (query, key) pairs of prefill x pair / 1024, in picoseconds."""

    overhead_ps: int
    floor_ps: int
    token_ps: int
    decode_seq_ps: int
    kv_token_ps: int
    pair_ps_per_1024: int
    evidence: EvidenceDocument
    relative_error: Annotated[
        float | None, Meta(description="How far a fitted model was off on the run it was fitted to.")
    ]


class WorkloadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends what. `arrival_scale` is how many times as fast as its source it was sent."""

    name: str
    source: str
    requests: int
    arrival_scale: float
    seed: int
    notes: tuple[str, ...]


class AimsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must meet to be served well, null where there is no aim, and the share of offered requests that must."""

    ttft_ms: float | None
    tpot_ms: float | None
    latency_ms: float | None
    goodput: float


class ConditionsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the answer depends on besides this program."""

    model: Annotated[str | None, Meta(description="Null where the pool was given without a plan.")]
    engine: str | None
    engine_version: str | None
    device: str | None
    num_blocks: int
    usable_blocks: int
    block_tokens: int
    pool_tokens: int
    pool_bytes: Annotated[int, Meta(description="Of one rank; 0 where a block's bytes are not known.")]
    pool_from: Annotated[str, Meta(description="What the number of blocks comes from.")]
    scheduling: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    chunked_prefill: bool
    prefix_caching: bool
    watermark: float
    async_scheduling: bool
    replicas: int
    prefill_replicas: int
    router: str
    tool_wait: str
    step: StepModelDocument
    workload: WorkloadDocument
    aims: AimsDocument


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The same as values; `requests` are those of one replication."""

    settings: SimulationSettings
    header: WorkloadHeader
    pool_from: str
    plan: Plan | None = None
    requests: int = 0
    arrival_scale: float = 1.0
    seed: int = 0
    goodput: float = 0.99


def conditions_document(found: Conditions) -> ConditionsDocument:
    """The conditions as they are published."""
    settings = found.settings
    layout, scheduler, fleet = settings.layout, settings.scheduler, settings.fleet
    inputs = None if found.plan is None else found.plan.inputs
    block_tokens = tokens_a_block(layout)
    return ConditionsDocument(
        model=None if inputs is None else inputs.model,
        engine=None if inputs is None else inputs.engine,
        engine_version=None if inputs is None else inputs.engine_version,
        device=None if inputs is None else inputs.device,
        num_blocks=layout.num_blocks,
        usable_blocks=layout.usable_blocks,
        block_tokens=block_tokens,
        pool_tokens=capacity_tokens(layout),
        pool_bytes=layout.num_blocks * layout.block_bytes,
        pool_from=found.pool_from,
        scheduling=scheduler.scheduling.value,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_model_len=scheduler.max_model_len,
        chunked_prefill=scheduler.chunked_prefill,
        prefix_caching=scheduler.prefix_caching,
        watermark=scheduler.watermark,
        async_scheduling=scheduler.async_scheduling,
        replicas=fleet.replicas,
        prefill_replicas=fleet.prefill_replicas,
        router=fleet.router.value,
        tool_wait=settings.tool_wait.value,
        step=step_document(settings.step),
        workload=WorkloadDocument(
            name=found.header.name,
            source=found.header.source,
            requests=found.requests,
            arrival_scale=found.arrival_scale,
            seed=found.seed,
            notes=found.header.notes,
        ),
        aims=AimsDocument(
            ttft_ms=settings.slo.ttft_ms,
            tpot_ms=settings.slo.tpot_ms,
            latency_ms=settings.slo.latency_ms,
            goodput=found.goodput,
        ),
    )


def step_document(step: StepModel) -> StepModelDocument:
    """A step model as it is published."""
    return StepModelDocument(
        overhead_ps=step.overhead_ps,
        floor_ps=step.floor_ps,
        token_ps=step.token_ps,
        decode_seq_ps=step.decode_seq_ps,
        kv_token_ps=step.kv_token_ps,
        pair_ps_per_1024=step.pair_ps_per_1024,
        evidence=evidence_document(step.evidence),
        relative_error=step.relative_error,
    )


def title(found: Conditions) -> str:
    """What was simulated, in a line."""
    settings, inputs = found.settings, None if found.plan is None else found.plan.inputs
    parts = (
        [] if inputs is None else [inputs.model, f"{inputs.engine} {inputs.engine_version}", inputs.device]
    )
    replicas = settings.fleet.replicas
    room = _room(settings.layout)
    parts.append(f"{replicas:,} replicas of {room}" if replicas > 1 else room)
    return " · ".join([*parts, found.header.name])


def _room(layout: PoolLayout) -> str:
    """What a pool has room for: tokens; at most so many where windows and states take blocks too; sequences where nothing grows."""
    if all(group.is_constant for group in layout.groups):
        return f"states of {counted(layout.usable_blocks // sum(group.state_blocks for group in layout.groups), 'sequence')}"
    return f"{'' if layout.is_plain else 'up to '}{capacity_tokens(layout):,} KV tokens"


def condition_lines(found: Conditions, width: int) -> Iterator[Line]:
    """Under which the answer holds, weakest evidence told as such."""
    settings, layout = found.settings, found.settings.layout
    scheduler, fleet = settings.scheduler, settings.fleet
    step = settings.step
    error = (
        ""
        if step.relative_error is None
        else f", off by {step.relative_error:.1%} on the run it was fitted to"
    )
    kind = step.evidence.kind
    texts = [
        f"step time {kind.value}: {step.evidence.source}{error}; {step_text(step)}",
        f"pool: {counted(layout.usable_blocks, 'usable block')} of {counted(tokens_a_block(layout), 'token')}"
        + (
            ""
            if layout.is_plain
            else f" in {counted(len(layout.groups), 'group')}; tokens are those of layers that keep all"
        )
        + (
            f", {format_bytes(layout.num_blocks * layout.block_bytes)} on a rank"
            if layout.block_bytes
            else ""
        )
        + f", from {found.pool_from}",
        f"scheduler: {scheduler.scheduling.value}, max_num_seqs {scheduler.max_num_seqs:,}, "
        f"max_num_batched_tokens {scheduler.max_num_batched_tokens:,}, max_model_len {scheduler.max_model_len:,}, "
        + ", ".join(
            f"{'' if on else 'no '}{name}"
            for name, on in (
                ("chunked prefill", scheduler.chunked_prefill),
                ("prefix cache", scheduler.prefix_caching),
            )
        )
        + (f", watermark {scheduler.watermark:g}" if scheduler.watermark else "")
        + (", async" if scheduler.async_scheduling else ""),
    ]
    ranks = 1 if found.plan is None else found.plan.inputs.dp
    if ranks > 1:
        texts.append(
            f"data parallelism: {ranks} ranks have a pool each, and {counted(fleet.replicas, 'replica')} of one rank "
            f"{'serves' if fleet.replicas == 1 else 'serve'} all requests here; --replicas {ranks} is the whole instance"
        )
    if fleet.replicas > 1:
        split = f", {fleet.prefill_replicas} of them prefill" if fleet.prefill_replicas else ""
        texts.append(f"fleet: {fleet.replicas} replicas{split}, routed {fleet.router.value}")
    scale = "" if found.arrival_scale == 1 else f", sent {found.arrival_scale:g} times as fast"
    texts.append(
        f"workload: {counted(found.requests, 'request')} of {found.header.source}{scale}; tool waits: {settings.tool_wait.value}"
    )
    texts += found.header.notes
    for text in texts:
        weak = kind is EvidenceKind.ASSUMED and text is texts[0]
        yield from wrapped(text, width, first="  ", rest="    ", style="unsure" if weak else "")


def step_text(step: StepModel) -> str:
    """A step model in a person's units."""
    ms, us = 1e9, 1e6
    parts = [f"{(step.overhead_ps + step.floor_ps) / ms:.2f} ms at least"]
    for value, what in ((step.token_ps, "a token computed"), (step.decode_seq_ps, "a decoding sequence")):
        if value:
            parts.append(f"{value / us:.3g} us {what}")
    if step.kv_token_ps:
        parts.append(f"{step.kv_token_ps / us * 1000:.3g} us per 1,000 cached tokens read")
    return ", ".join(parts)
