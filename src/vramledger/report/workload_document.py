"""The published workload: what `vramledger workload --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SCHEMA_VERSION, SchemaVersion
from vramledger.workload.facts import Reuse, Spread, WorkloadFacts
from vramledger.workload.request import WorkloadHeader


class SpreadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whole numbers in short; a quantile is the smallest value that so large a share does not exceed."""

    total: int
    mean: float
    p50: int
    p90: int
    p95: int
    p99: int
    max: int


class ReuseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What prompts share with requests before them, were nothing ever evicted. Leading blocks alone can be hit."""

    block_tokens: Annotated[int, Meta(description="Tokens of one of the trace's blocks.")]
    prompt_blocks: int
    reusable_blocks: int
    reusable_share: float
    reusable_tokens: int
    requests_with_a_hit: int


class TenantDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One of the ten largest tenants."""

    tenant: str
    requests: int


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True):
    """One trace."""

    file: str
    name: str
    requests: int
    span_ns: int
    rate_per_s: float | None
    arrival_cv: Annotated[
        float | None,
        Meta(description="Coefficient of variation of gaps between arrivals; 1 for a Poisson process."),
    ]
    busiest_minute: Annotated[
        float | None, Meta(description="Requests of the busiest minute over the mean of minutes.")
    ]
    prompt_tokens: SpreadDocument
    output_tokens: SpreadDocument
    reuse: Annotated[ReuseDocument | None, Meta(description="Null where the trace names no blocks.")]
    conversations: int
    requests_of_conversations: int
    longest_conversation: Annotated[int, Meta(description="Its requests.")]
    following: Annotated[int, Meta(description="Requests that are sent after another's end.")]
    pause_ns: Annotated[SpreadDocument | None, Meta(description="From that end until they are sent.")]
    branched: int
    cancelled: int
    with_deadline: int
    num_tenants: int
    tenants: tuple[TenantDocument, ...]
    notes: tuple[str, ...]


class WorkloadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Traces of requests: when they came, how long they were, what they share."""

    schema_version: SchemaVersion
    kind: Literal["workload"]
    workloads: tuple[WorkloadPart, ...]


def workload_document(parts: tuple[WorkloadPart, ...]) -> WorkloadDocument:
    """Traces as they are published."""
    return WorkloadDocument(schema_version=SCHEMA_VERSION, kind="workload", workloads=parts)


def workload_part(file: str, header: WorkloadHeader, facts: WorkloadFacts) -> WorkloadPart:
    """One trace as it is published."""
    return WorkloadPart(
        file=file,
        name=header.name,
        requests=facts.requests,
        span_ns=facts.span_ns,
        rate_per_s=facts.rate_per_s,
        arrival_cv=facts.arrival_cv,
        busiest_minute=facts.busiest_minute,
        prompt_tokens=_spread(facts.prompt_tokens),
        output_tokens=_spread(facts.output_tokens),
        reuse=None if facts.reuse is None else _reuse(facts.reuse),
        conversations=facts.conversations,
        requests_of_conversations=facts.requests_of_conversations,
        longest_conversation=facts.longest_conversation,
        following=facts.following,
        pause_ns=None if facts.pause_ns is None else _spread(facts.pause_ns),
        branched=facts.branched,
        cancelled=facts.cancelled,
        with_deadline=facts.with_deadline,
        num_tenants=facts.num_tenants,
        tenants=tuple(TenantDocument(tenant=item.tenant, requests=item.requests) for item in facts.tenants),
        notes=header.notes,
    )


def _spread(spread: Spread) -> SpreadDocument:
    return SpreadDocument(
        total=spread.total,
        mean=spread.mean,
        p50=spread.p50,
        p90=spread.p90,
        p95=spread.p95,
        p99=spread.p99,
        max=spread.max,
    )


def _reuse(reuse: Reuse) -> ReuseDocument:
    return ReuseDocument(
        block_tokens=reuse.block_tokens,
        prompt_blocks=reuse.prompt_blocks,
        reusable_blocks=reuse.reusable_blocks,
        reusable_share=reuse.share,
        reusable_tokens=reuse.reusable_tokens,
        requests_with_a_hit=reuse.requests_with_a_hit,
    )
