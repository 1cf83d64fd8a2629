"""The published look at what runs: each line that `vramledger watch --json` prints."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.decoding import by_name
from vramledger.documents.plan import SchemaVersion
from vramledger.gateway.onlooker import EngineMoment, GatewayMoment, Moment
from vramledger.observation import Sample

SCHEMA_VERSION = "1.0"

Blocks = Annotated[int | None, Meta(description="Blocks of the KV pool; null where it is not told.")]


class EngineMomentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An engine by its own word."""

    url: str
    engine: str
    version: str | None
    model: str | None
    block_size: Annotated[int | None, Meta(description="Tokens in a block.")]
    total_blocks: Annotated[Blocks, Meta(description="Blocks that requests may be given.")]
    used_blocks: Annotated[Blocks, Meta(description="Held by requests.")]
    free_blocks: Annotated[Blocks, Meta(description="The others; those with cached content among them.")]
    cached_blocks: Annotated[Blocks, Meta(description="Free ones whose content can still be found.")]
    running_requests: int | None
    waiting_requests: int | None
    totals: Annotated[
        dict[str, float], Meta(description="Counters since its start: names end in their unit.")
    ]
    notes: Annotated[tuple[str, ...], Meta(description="What was doubted or is not told.")]


class QueueDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that wait for the policy's word."""

    requests: int
    tokens: int
    oldest_age_ns: int


class InstanceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One engine as the gateway sees it, beside the gateway's books."""

    name: str
    engine: str
    is_up: bool | None
    block_size: Annotated[int | None, Meta(description="Tokens in a block.")]
    total_blocks: Blocks
    used_blocks: Annotated[Blocks, Meta(description="By the engine's word.")]
    free_blocks: Annotated[Blocks, Meta(description="By the engine's word.")]
    cached_blocks: Blocks
    booked_blocks: Annotated[Blocks, Meta(description="Held by admitted requests, by the books.")]
    reserved_blocks: Annotated[Blocks, Meta(description="The most that they will hold.")]
    limit_blocks: Annotated[Blocks, Meta(description="That admitted requests may hold.")]
    foreign_blocks: Annotated[Blocks, Meta(description="Held by what no admitted request explains.")]
    running_requests: int | None
    waiting_requests: int | None
    admitted_requests: int | None
    queued_requests: int | None
    weights_bytes: int | None
    runtime_bytes: int | None
    pool_bytes: int | None
    graph_pool_bytes: int | None
    adapter_bytes: int | None
    device_free_bytes: int | None
    device_total_bytes: int | None
    total_preempted_requests: int | None


class GatewayMomentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway by what its admin address says."""

    url: str
    admitted: Annotated[int, Meta(description="Requests that hold a reservation.")]
    in_flight: Annotated[int, Meta(description="Requests that engines work on.")]
    draining: bool
    queue: QueueDocument
    instances: tuple[InstanceDocument, ...]
    counters: Annotated[dict[str, int], Meta(description="What it counted since its start.")]


class DecidedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A request and what the gateway's policy said of it. Times count from its arrival."""

    number: int
    came_ms: Annotated[int, Meta(description="Unix time of its arrival, in milliseconds.")]
    kind: str
    standing: Annotated[
        str,
        Meta(description="undecided, waiting, running, or how it ended."),
    ]
    tenant: str
    model: str
    instance: Annotated[int | None, Meta(description="The engine's place in the gateway's list.")]
    verdict: Annotated[str | None, Meta(description="The last word; null before the first one.")]
    rule: str
    message: str
    numbers: Annotated[dict[str, int], Meta(description="What was compared.")]
    first_verdict: Annotated[str | None, Meta(description="The first word, where another one followed.")]
    first_rule: str
    queue_ms: int | None
    first_token_ms: int | None
    finished_ms: int | None
    prompt_tokens: int | None
    max_output_tokens: int | None
    output_tokens: int | None
    status: int | None
    ran_out: Annotated[bool, Meta(description="The engine's error says that its memory ran out.")]


class SampleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One reading; its name ends in its unit."""

    source: str
    name: str
    value: int | float
    pid: int | None
    label: str


class MomentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One look at an engine, a gateway and this machine. What does not answer is null, and `problems` say why."""

    schema_version: SchemaVersion
    kind: Literal["moment"]
    at_s: Annotated[float, Meta(description="Unix time.")]
    engine: EngineMomentDocument | None
    gateway: GatewayMomentDocument | None
    requests: Annotated[
        tuple[DecidedDocument, ...],
        Meta(
            description="That the gateway took in or that changed since the line before, oldest first; in the first line the newest ones."
        ),
    ]
    samples: Annotated[tuple[SampleDocument, ...], Meta(description="Of devices and processes.")]
    problems: Annotated[
        dict[str, str], Meta(description="By the address or probe that does not answer: why.")
    ]


def moment_document(moment: Moment) -> MomentDocument:
    """The look as it is published."""
    return MomentDocument(
        schema_version=SCHEMA_VERSION,
        kind="moment",
        at_s=moment.at_s,
        engine=None if moment.engine is None else _engine(moment.engine),
        gateway=None if moment.gateway is None else _gateway(moment.gateway),
        requests=by_name(moment.requests, tuple[DecidedDocument, ...]),
        samples=tuple(_sample(sample) for sample in moment.samples),
        problems=dict(moment.problems),
    )


def _engine(engine: EngineMoment) -> EngineMomentDocument:
    return by_name(engine, EngineMomentDocument)


def _gateway(gateway: GatewayMoment) -> GatewayMomentDocument:
    state = gateway.state
    return GatewayMomentDocument(
        url=gateway.url,
        admitted=state.admitted,
        in_flight=state.in_flight,
        draining=state.draining,
        queue=by_name(state.queue, QueueDocument),
        instances=by_name(state.instances, tuple[InstanceDocument, ...]),
        counters=dict(gateway.counters),
    )


def _sample(sample: Sample) -> SampleDocument:
    return by_name(sample, SampleDocument)
