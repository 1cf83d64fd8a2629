"""What was measured of one running instance, put in the ledger's words: the other side of a reconciliation."""

from __future__ import annotations

from msgspec import Struct

from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.pool import FloatRange, IntRange


class Figure(Struct, frozen=True, kw_only=True):
    """Bytes that a source states of a part of the ledger on one rank.

    `owners` are whose entries the figure covers; `entries`, where not empty, narrows it to entries of these names
    (beginnings of names). `without` are beginnings of names that it leaves out. `phase` is when it was read, None for a
    figure that does not change after load. `ranks` are the world ranks it speaks of, () where the source does not tell.
    `inside_budget_only` is for figures that an engine counts against its own budget. `on_host` says that the bytes lie in host
    memory (a plan's `host` entries), not on a device. The range is as wide as the print's rounding.
    """

    owners: tuple[Owner, ...]
    name: str
    bytes: ByteRange
    evidence: Evidence
    entries: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    phase: Phase | None = None
    ranks: tuple[int, ...] = ()
    inside_budget_only: bool = False
    on_host: bool = False


class AllocatorState(Struct, frozen=True, kw_only=True):
    """Four values that are never one, each None where no source tells it.

    `allocated_bytes` are held by tensors, `reserved_bytes` by the framework's allocator (allocated, pending and free
    blocks), `pool_free_bytes` are free inside what is reserved, `device_free_bytes` is what the driver says is free.
    `outside_bytes` is what the process holds beside the allocator (context, libraries, other pools).
    """

    evidence: Evidence
    phase: Phase | None = None
    point: str = ""
    ranks: tuple[int, ...] = ()
    at_s: float | None = None
    allocated_bytes: ByteRange | None = None
    reserved_bytes: ByteRange | None = None
    pool_free_bytes: ByteRange | None = None
    device_free_bytes: ByteRange | None = None
    device_total_bytes: ByteRange | None = None
    outside_bytes: ByteRange | None = None
    largest_free_run_bytes: ByteRange | None = None


class MeasuredPool(Struct, frozen=True, kw_only=True):
    """The KV pool as the engine states it; each None where it does not. Of several ranks the smallest."""

    evidence: Evidence
    bytes: ByteRange | None = None
    num_blocks: IntRange | None = None
    block_size: int | None = None
    tokens: IntRange | None = None
    max_concurrency: FloatRange | None = None
    context_len: int | None = None
    kind: str = ""


class HostMemory(Struct, frozen=True, kw_only=True):
    """Host memory of one process: resident, proportional (shared pages divided among their users), shared."""

    process: str
    evidence: Evidence
    pid: int | None = None
    phase: Phase | None = None
    at_s: float | None = None
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None


class GraphCapture(Struct, frozen=True, kw_only=True):
    """One captured size: what the device lost while it was captured, and whether its pool is shared with others."""

    shape: str
    increment_bytes: ByteRange
    evidence: Evidence
    shared_pool: bool | None = None


class MeasurementSource(Struct, frozen=True, kw_only=True):
    """A file or an address that was read: its digest where it is a file, and the times it spans."""

    name: str
    kind: str
    sha256: str | None = None
    size_bytes: int | None = None
    from_s: float | None = None
    until_s: float | None = None


class Measurement(Struct, frozen=True, kw_only=True):
    """One instance, measured. What no source tells is None or empty, never 0.

    `settings` are the engine's own names and values as it printed or answered them.
    """

    sources: tuple[MeasurementSource, ...]
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    model_revision: str | None = None
    architecture: str | None = None
    device: str | None = None
    device_total_bytes: ByteRange | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    settings: tuple[tuple[str, str | int | float | bool], ...] = ()
    figures: tuple[Figure, ...] = ()
    pools: tuple[MeasuredPool, ...] = ()
    allocator: tuple[AllocatorState, ...] = ()
    graphs: tuple[GraphCapture, ...] = ()
    host: tuple[HostMemory, ...] = ()
    notes: tuple[str, ...] = ()
