"""What fills an engine's devices, from a plan or from what was measured, for whoever tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import asdict, replace

from vramledger.answer import Plan
from vramledger.gateway.snapshot import InstanceState, MemoryFacts
from vramledger.ledger import ByteRange, Owner, Phase, RankLedger
from vramledger.measurement import AllocatorState, Figure, Measurement

RUNTIME = (Owner.RUNTIME_CONTEXT, Owner.WORKSPACE, Owner.COLLECTIVES, Owner.ALLOCATOR, Owner.ACTIVATION)


def planned_memory(plan: Plan) -> MemoryFacts:
    """What a plan expects while the engine decodes. Of a part that the plan has no entry for nothing is said."""
    return MemoryFacts(
        device_total_bytes=sum(ledger.device_total_bytes * len(ledger.ranks) for ledger in plan.ranks)
        or None,
        weights_bytes=_owned(plan.ranks, (Owner.WEIGHTS,)),
        runtime_bytes=_owned(plan.ranks, RUNTIME),
        pool_bytes=_owned(plan.ranks, (Owner.KV_CACHE,)),
        graph_pool_bytes=_owned(plan.ranks, (Owner.GRAPH_POOL,)),
        adapter_bytes=_owned(plan.ranks, (Owner.ADAPTERS,)),
    )


def measured_memory(measurement: Measurement) -> MemoryFacts:
    """What was measured, as far as it is of the whole instance: of several ranks only where each of them is named."""
    ranks = (measurement.tp or 1) * (measurement.pp or 1) * (measurement.dp or 1)
    pool = next((pool.bytes for pool in measurement.pools if pool.bytes is not None), None)
    states = [state for state in measurement.allocator if state.ranks or ranks == 1]
    return MemoryFacts(
        device_total_bytes=_expected(measurement.device_total_bytes, ranks),
        device_allocated_bytes=_last(states, "allocated_bytes", ranks),
        device_reserved_bytes=_last(states, "reserved_bytes", ranks),
        device_free_bytes=_last(states, "device_free_bytes", ranks),
        weights_bytes=_figure(measurement.figures, Owner.WEIGHTS, ranks),
        pool_bytes=_expected(pool, ranks)
        if pool is not None
        else _figure(measurement.figures, Owner.KV_CACHE, ranks),
        graph_pool_bytes=_figure(measurement.figures, Owner.GRAPH_POOL, ranks),
        adapter_bytes=_figure(measurement.figures, Owner.ADAPTERS, ranks),
    )


def with_memory(state: InstanceState, *known: MemoryFacts) -> InstanceState:
    """A state with what it does not say itself; what stands first is believed."""
    missing = {name for name in MemoryFacts.__struct_fields__ if getattr(state, name) is None}
    found: dict[str, int] = {}
    for facts in known:
        for name, value in asdict(facts).items():
            if value is not None and name in missing:
                found.setdefault(name, value)
    return replace(state, **found) if found else state


def _owned(ledgers: Sequence[RankLedger], owners: tuple[Owner, ...]) -> int | None:
    held = [
        entry.bytes.expected * len(ledger.ranks)
        for ledger in ledgers
        for entry in ledger.entries
        if entry.owner in owners and Phase.DECODE in entry.phases
    ]
    return sum(held) if held else None


def _figure(figures: Iterable[Figure], owner: Owner, ranks: int) -> int | None:
    """One figure of the whole part for each rank, else nothing."""
    by_rank: dict[tuple[int, ...], int] = {}
    for figure in figures:
        whole = figure.owners == (owner,) and not figure.entries and not figure.without and not figure.on_host
        if whole:
            by_rank[figure.ranks] = figure.bytes.expected
    if not by_rank:
        return None
    if len(by_rank) == 1 and ranks == 1:
        return next(iter(by_rank.values()))
    if any(len(named) != 1 for named in by_rank) or len(by_rank) != ranks:
        return None
    return sum(by_rank.values())


def _last(states: Sequence[AllocatorState], name: str, ranks: int) -> int | None:
    by_rank: dict[tuple[int, ...], int] = {}
    for state in states:
        value = getattr(state, name)
        if value is not None:
            by_rank[state.ranks] = value.expected
    return sum(by_rank.values()) if len(by_rank) == ranks else None


def _expected(size: ByteRange | None, ranks: int) -> int | None:
    return None if size is None else size.expected * ranks
