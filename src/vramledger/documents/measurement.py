"""The published measurement: what `vramledger measure --json` writes.

Bytes, tokens and blocks are whole numbers; what no source told is null or empty, never 0. A field is added with a new
minor version; one that changes its meaning or goes needs a new major version and a new schema file.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.decoding import by_name
from vramledger.documents.plan import (
    ByteInterval,
    CountInterval,
    EvidenceDocument,
    RatioInterval,
    SchemaVersion,
)
from vramledger.ledger import Owner, Phase
from vramledger.measurement import Measurement

SCHEMA_VERSION = "1.0"

Seconds = Annotated[float | None, Meta(description="Unix time; null where no source tells it.")]
Ranks = Annotated[
    tuple[int, ...], Meta(description="World ranks it speaks of; empty where the source does not tell.")
]
ReadPhase = Annotated[
    Phase | None, Meta(description="When it was read; null for what does not change after load.")
]


class FigureDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a source states of a part of the ledger on one rank; the range is as wide as its rounding."""

    owners: Annotated[tuple[Owner, ...], Meta(description="Whose entries the figure covers.")]
    name: str
    bytes: ByteInterval
    evidence: EvidenceDocument
    entries: Annotated[
        tuple[str, ...],
        Meta(
            description="Beginnings of names of the entries it is narrowed to; empty for all of the owners'."
        ),
    ] = ()
    without: Annotated[
        tuple[str, ...], Meta(description="Beginnings of names of entries that it leaves out.")
    ] = ()
    phase: ReadPhase = None
    ranks: Ranks = ()
    inside_budget_only: Annotated[
        bool, Meta(description="Whether it counts only what the engine charges to its own budget.")
    ] = False
    on_host: Annotated[bool, Meta(description="Whether the bytes lie in host memory, not on a device.")] = (
        False
    )


class AllocatorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Held by tensors, reserved by the framework's allocator, free inside what is reserved, free on the device: four
    values that are never one."""

    evidence: EvidenceDocument
    phase: ReadPhase = None
    point: Annotated[str, Meta(description="Where in its run it was read, in the source's words.")] = ""
    ranks: Ranks = ()
    at_s: Seconds = None
    allocated_bytes: ByteInterval | None = None
    reserved_bytes: ByteInterval | None = None
    pool_free_bytes: ByteInterval | None = None
    device_free_bytes: ByteInterval | None = None
    device_total_bytes: ByteInterval | None = None
    outside_bytes: Annotated[
        ByteInterval | None, Meta(description="Held by the process beside the allocator.")
    ] = None
    largest_free_run_bytes: ByteInterval | None = None


class MeasuredPoolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The KV pool as the engine states it; of several ranks the smallest."""

    evidence: EvidenceDocument
    bytes: ByteInterval | None = None
    num_blocks: CountInterval | None = None
    block_size: Annotated[int | None, Meta(description="Tokens in a block.")] = None
    tokens: CountInterval | None = None
    max_concurrency: RatioInterval | None = None
    context_len: Annotated[
        int | None, Meta(description="Tokens of the requests that max_concurrency is of.")
    ] = None
    kind: Annotated[str, Meta(description="The engine's word where it has several pools.")] = ""


class HostMemoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Host memory of one process: resident, proportional, shared, private."""

    process: str
    evidence: EvidenceDocument
    pid: int | None = None
    phase: ReadPhase = None
    at_s: Seconds = None
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None


class GraphCaptureDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One captured size: what the device lost while it was captured."""

    shape: str
    increment_bytes: ByteInterval
    evidence: EvidenceDocument
    shared_pool: Annotated[
        bool | None, Meta(description="Whether its memory pool is shared with other captures.")
    ] = None


class MeasurementSourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A file or an address that was read."""

    name: str
    kind: str
    sha256: str | None = None
    size_bytes: int | None = None
    from_s: Seconds = None
    until_s: Seconds = None


class MeasurementDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One running instance, measured: the other side of a plan."""

    schema_version: SchemaVersion
    kind: Literal["measurement"]
    sources: tuple[MeasurementSourceDocument, ...]
    engine: str | None
    engine_version: str | None
    model: str | None
    model_revision: str | None
    architecture: str | None
    device: str | None
    device_total_bytes: ByteInterval | None
    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None
    settings: Annotated[
        dict[str, str | int | float | bool],
        Meta(description="The engine's own names and values, as it printed or answered them."),
    ]
    figures: tuple[FigureDocument, ...]
    pools: tuple[MeasuredPoolDocument, ...]
    allocator: tuple[AllocatorDocument, ...]
    graphs: tuple[GraphCaptureDocument, ...]
    host: tuple[HostMemoryDocument, ...]
    notes: tuple[str, ...]


def measurement_document(measurement: Measurement) -> MeasurementDocument:
    """The measurement as it is published; of settings named twice the last is kept."""
    return MeasurementDocument(
        schema_version=SCHEMA_VERSION,
        kind="measurement",
        sources=by_name(measurement.sources, tuple[MeasurementSourceDocument, ...]),
        engine=measurement.engine,
        engine_version=measurement.engine_version,
        model=measurement.model,
        model_revision=measurement.model_revision,
        architecture=measurement.architecture,
        device=measurement.device,
        device_total_bytes=None
        if measurement.device_total_bytes is None
        else by_name(measurement.device_total_bytes, ByteInterval),
        tp=measurement.tp,
        pp=measurement.pp,
        dp=measurement.dp,
        ep=measurement.ep,
        settings=dict(measurement.settings),
        figures=by_name(measurement.figures, tuple[FigureDocument, ...]),
        pools=by_name(measurement.pools, tuple[MeasuredPoolDocument, ...]),
        allocator=by_name(measurement.allocator, tuple[AllocatorDocument, ...]),
        graphs=by_name(measurement.graphs, tuple[GraphCaptureDocument, ...]),
        host=by_name(measurement.host, tuple[HostMemoryDocument, ...]),
        notes=measurement.notes,
    )
