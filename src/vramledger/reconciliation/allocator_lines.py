"""The four values of an allocator, each beside what the ledger has for it; none stands for another.

The ledger's counterparts: tensors are what the engine allocates through its framework, reserved adds the allocator's rests and
graphs, the device's free memory is its total less everything. What lives for one step counts for the high end where no
step may have run.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.answer import Plan
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Lifetime, Owner, Phase, RankLedger, total
from vramledger.measurement import AllocatorState, Measurement
from vramledger.reconciliation.alike_ranks import one_state
from vramledger.reconciliation.coverage import together
from vramledger.reconciliation.result import Interval, Line, Section, Unit, interval, standing_of

TENSORS = frozenset({Owner.WEIGHTS, Owner.ADAPTERS, Owner.KV_CACHE, Owner.ACTIVATION, Owner.WORKSPACE})
RESERVED = TENSORS | {Owner.ALLOCATOR, Owner.GRAPH_POOL}
OUTSIDE = frozenset({Owner.RUNTIME_CONTEXT, Owner.COLLECTIVES})
BEFORE_LOAD = ("before the load", "before load")
"""How readings of logs call the time at which nothing but contexts and communicators is held."""
BEFORE_POOL = ("before the pool", "after profile", "before profile", "after the load", "after load")
IN_BETWEEN = ("peak of", "peak while", "asleep", "part created", "creation failed", "framework's limit")
"""Moments of which a ledger's phases say nothing: an estimating run's, one inside the load."""
SURE = frozenset({Owner.WEIGHTS, Owner.ADAPTERS})
_STEPS = frozenset({Phase.PREFILL, Phase.DECODE, Phase.RECOVERY})


def allocator_lines(plan: Plan, measurement: Measurement) -> tuple[Line, ...]:
    """Every value that was told, of the last state of each point and phase, ranks that are alike together."""
    groups: dict[tuple[object, ...], list[AllocatorState]] = {}
    for state in measurement.allocator:
        rank = _rank(plan, state)
        groups.setdefault((rank.ranks if rank else (), state.phase, state.point), []).append(state)
    return tuple(line for states in groups.values() for line in _lines(plan, one_state(states)))


def _rank(plan: Plan, state: AllocatorState) -> RankLedger | None:
    """The kind of rank that a state is of; the first where it does not tell."""
    first = plan.ranks[0] if plan.ranks else None
    return next((item for item in plan.ranks if set(item.ranks) & set(state.ranks)), first)


def _lines(plan: Plan, state: AllocatorState) -> Iterator[Line]:
    rank = _rank(plan, state)
    at = state.point or (state.phase.value if state.phase is not None else "")
    where = f" at {at}" if at else ""
    for name, theirs, ours in (
        ("allocated", state.allocated_bytes, _allocated(rank, state.phase)),
        ("reserved", state.reserved_bytes, _reserved(rank, state.phase)),
        ("free inside the pool", state.pool_free_bytes, _pool_free(rank, state.phase)),
        ("device free", state.device_free_bytes, _device_free(rank, state)),
        ("outside the allocator", state.outside_bytes, _outside(rank, state.phase)),
        ("largest free run", state.largest_free_run_bytes, None),
    ):
        if theirs is None:
            continue
        measured = interval(theirs)
        yield Line(
            section=Section.ALLOCATOR,
            name=f"{name}{where}",
            unit=Unit.BYTES,
            standing=standing_of(ours, measured),
            predicted=ours,
            measured=measured,
            ranks=() if rank is None else rank.ranks,
            phase=state.phase,
            evidence=state.evidence,
        )


def _split(rank: RankLedger, owners: frozenset[Owner], phase: Phase | None) -> tuple[ByteRange, ByteRange]:
    """What stays, and what lives for a step, of some owners in a phase (None: some time after load)."""
    stays = [
        entry for entry in rank.entries if entry.owner in owners and entry.lifetime is not Lifetime.ITERATION
    ]
    steps = [
        entry for entry in rank.entries if entry.owner in owners and entry.lifetime is Lifetime.ITERATION
    ]
    return _held(stays, phase, rank), _held(steps, phase, rank)


def _held(entries: list[Entry], phase: Phase | None, rank: RankLedger) -> ByteRange:
    return together([entry for entry in entries if entry.owner is not Owner.HEADROOM], phase, rank.entries)


def _with_steps(stays: ByteRange, steps: ByteRange, phase: Phase | None) -> Interval:
    """A step may or may not be running at the moment of a reading."""
    expected = stays.expected + (steps.expected if phase in _STEPS else 0)
    return Interval(stays.low, expected, stays.high + steps.high)


def _allocated(rank: RankLedger | None, phase: Phase | None) -> Interval | None:
    return None if rank is None else _with_steps(*_split(rank, TENSORS, phase), phase)


def _reserved(rank: RankLedger | None, phase: Phase | None) -> Interval | None:
    return None if rank is None else _with_steps(*_split(rank, RESERVED, phase), phase)


def _pool_free(rank: RankLedger | None, phase: Phase | None) -> Interval | None:
    """Rests of segments, and what a step gave back."""
    if rank is None:
        return None
    rests, _ = _split(rank, frozenset({Owner.ALLOCATOR, Owner.GRAPH_POOL}), phase)
    _, steps = _split(rank, TENSORS, phase)
    return Interval(0, rests.expected, rests.high + steps.high)


def _outside(rank: RankLedger | None, phase: Phase | None) -> Interval | None:
    """Context and communicators; kernels that are loaded later are among the allocator's lines and count for the high end."""
    if rank is None:
        return None
    stays, steps = _split(rank, OUTSIDE, phase)
    loaded, _ = _split(rank, frozenset({Owner.ALLOCATOR}), phase)
    return Interval(stays.low, stays.expected, stays.high + steps.high + loaded.high)


def _device_free(rank: RankLedger | None, state: AllocatorState) -> Interval | None:
    """The device less all that is held at that point. What a start-up makes step by step may not be there yet."""
    if rank is None or state.point.startswith(IN_BETWEEN):
        return None
    size = rank.device_total_bytes
    if is_before_load(state):
        around = total(entry.bytes for entry in rank.entries if entry.owner in OUTSIDE)
        return Interval(size - around.high, size - around.expected, size - around.low)
    if state.phase in _STEPS or state.phase is None:
        return _serving_free(rank, state.phase)
    pool_is_made = not state.point.startswith(BEFORE_POOL)
    phase = Phase.WARMUP if state.phase is Phase.LOAD and not pool_is_made else state.phase
    owners = SURE | OUTSIDE | (frozenset({Owner.KV_CACHE}) if pool_is_made else frozenset())
    alive = [entry for entry in rank.entries if phase in entry.phases]
    sure = total(entry.bytes for entry in alive if entry.owner in owners and not entry.is_remainder)
    rest = total(
        entry.bytes for entry in alive if entry.owner not in owners and entry.owner is not Owner.KV_CACHE
    )
    pools = [entry.bytes for entry in alive if entry.is_remainder and pool_is_made]
    # A pool is large only where the lines that are charged beside it are small: it counts with its expected size.
    pool = sum(item.expected for item in pools)
    spread = sum(item.high - item.low for item in pools)
    low, high = sure.low + pool - spread, sure.high + pool + spread + rest.high
    expected = sure.expected + pool
    return Interval(size - high, size - expected, size - low)


def _serving_free(rank: RankLedger, phase: Phase | None) -> Interval:
    """The device less all that is held; the charged part is the budget once the pool is made."""
    size = rank.device_total_bytes
    stays = [
        entry
        for entry in rank.entries
        if entry.lifetime is not Lifetime.ITERATION and entry.owner is not Owner.HEADROOM
    ]
    held, most = _held(stays, phase, rank), _occupied(rank, phase)
    least, high = min(held.low, most.low), max(held.high, most.high)
    expected = most.expected if phase in _STEPS else held.expected
    return Interval(size - high, size - min(max(expected, least), high), size - least)


def is_before_load(state: AllocatorState) -> bool:
    return state.point.startswith(BEFORE_LOAD)


def _occupied(rank: RankLedger, phase: Phase | None) -> ByteRange:
    if phase is not None:
        return rank.occupied(phase)
    found = total(())
    for each in sorted(AFTER_LOAD):
        found = found.upper(rank.occupied(each))
    return found
