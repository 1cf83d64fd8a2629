"""A plan with what was measured in it, and the pool that the budget leaves with measured terms.

The pool is the engine's own arithmetic: the budget less the lines that are charged while it warms up, in whole blocks.
Tokens and requests at once follow in the plan's ratio to blocks. What the plan rounds or reserves beside its ledger stays as it
was planned.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.evidence import measured as measured_evidence
from vramledger.ledger import ByteRange, Entry, Owner, Phase, RankLedger, total
from vramledger.measurement import Figure, MeasuredPool, Measurement
from vramledger.pool import FloatRange, IntRange, KvPool
from vramledger.reconciliation.alike_ranks import one_figure
from vramledger.reconciliation.coverage import ledgers_of
from vramledger.reconciliation.measured_ledger import MeasuredLedger, measured_ledger, narrowed
from vramledger.reconciliation.pool_lines import main_pool, total_bytes
from vramledger.reconciliation.result import Budget, Interval, interval
from vramledger.reconciliation.settings import planned_total

_FRACTION = "free_gpu_memory_fraction"


class _Room(Struct, frozen=True, kw_only=True):
    """How many blocks one kind of rank has room for: at least, expected, at most."""

    rank: RankLedger
    found: MeasuredLedger
    blocks: tuple[int, int, int]


def recomputed_budget(plan: Plan, measurement: Measurement) -> Budget | None:
    """The pool that the budget leaves when measured terms replace calculated ones; None where the plan's pool does not
    come from a budget."""
    pool = plan.kv_pool
    rooms = _rooms(plan, measurement)
    if pool is None or not rooms:
        return None
    binding = min(rooms, key=lambda room: room.blocks[1])
    low, expected, high = (min(counts) for counts in zip(*(room.blocks for room in rooms), strict=True))
    blocks = IntRange(low, expected, max(high, expected))
    many = _times(blocks, pool.max_concurrency.expected, pool.num_blocks.expected)
    names = [
        entry.name
        for entry in binding.found.entries
        if _is_charged(entry, plan) and Phase.WARMUP in entry.phases
    ]
    return Budget(
        ranks=binding.rank.ranks,
        budget_bytes=interval(_budget(plan, measurement)),
        planned_bytes=interval(pool.bytes),
        pool_bytes=interval(_scaled(blocks, pool.bytes.expected, pool.num_blocks.expected)),
        num_blocks=interval(blocks),
        tokens=interval(_scaled(blocks, pool.tokens.expected, pool.num_blocks.expected)),
        max_concurrency=interval(many),
        measured_terms=tuple(name for name in names if name in binding.found.measured),
        calculated_terms=tuple(name for name in names if name not in binding.found.measured),
        rule="the budget less the charged lines, in whole blocks; tokens and requests in the plan's ratio to blocks",
    )


def _rooms(plan: Plan, measurement: Measurement) -> list[_Room]:
    """Every kind of rank whose pool is a remainder of its budget."""
    pool = plan.kv_pool
    kinds = [rank for rank in plan.ranks if any(entry.is_remainder for entry in rank.entries)]
    if pool is None or not pool.num_blocks.expected or not kinds:
        return []
    factor = _factor(plan)
    before, now = _budget(plan, None), _budget(plan, measurement)
    held = {rank.ranks: _pool_bytes(rank) for rank in kinds}
    planned = {rank.ranks: _left(rank.entries, before, plan, factor) for rank in kinds}
    binding = min(kinds, key=lambda rank: _ratio(planned[rank.ranks].expected, held[rank.ranks].expected))
    is_remainder = _is_within_a_block(planned[binding.ranks], held[binding.ranks], pool)
    rooms = []
    for rank in kinds:
        block = max(held[rank.ranks].expected // pool.num_blocks.expected, 1)
        found = measured_ledger(rank.entries, _speaking(plan, measurement, rank), for_budget=True)
        left = _left(found.entries, now, plan, factor)
        if is_remainder:
            low, expected, high = (max(size, 0) // block for size in _ends(left))
        else:
            # Reserves that are no lines of a ledger: the planned blocks, moved by what the measured terms change.
            low, expected, high = (
                max(count + (size - was) // block, 0)
                for count, size, was in zip(
                    _ends(pool.num_blocks), _ends(left), _ends(planned[rank.ranks]), strict=True
                )
            )
        rooms.append(
            _Room(rank=rank, found=found, blocks=(min(low, expected), expected, max(high, expected)))
        )
    return rooms


def _is_within_a_block(left: ByteRange, held: ByteRange, pool: KvPool) -> bool:
    """Whether the planned pool is what the ledger leaves, in whole blocks."""
    block = held.expected // max(pool.num_blocks.expected, 1)
    return all(0 <= one - other < max(block, 1) for one, other in zip(_ends(left), _ends(held), strict=True))


def _ends(found: ByteRange | IntRange) -> tuple[int, int, int]:
    return found.low, found.expected, found.high


def _pool_bytes(rank: RankLedger) -> ByteRange:
    return total(
        entry.bytes for entry in rank.entries if entry.owner is Owner.KV_CACHE and entry.inside_budget
    )


def _left(entries: Sequence[Entry], budget: ByteRange, plan: Plan, factor: float) -> ByteRange:
    """The budget less what is charged while engines warm up, which is when they size their pool."""
    held = total(
        entry.bytes for entry in entries if Phase.WARMUP in entry.phases and _is_charged(entry, plan)
    )
    left = budget - held
    return ByteRange(*(int(size * factor) for size in (left.low, left.expected, left.high)))


def _is_charged(entry: Entry, plan: Plan) -> bool:
    """Whether an entry makes the pool smaller. Where the pool is a share of what is left after all, all are."""
    if entry.owner in (Owner.KV_CACHE, Owner.HEADROOM):
        return False
    return entry.inside_budget or _factor(plan) != 1


def _factor(plan: Plan) -> float:
    """The share of what is left that becomes the pool, where the engine has one."""
    found = dict(plan.inputs.settings).get(_FRACTION)
    return float(found) if isinstance(found, int | float) else 1.0


def _budget(plan: Plan, measurement: Measurement | None) -> ByteRange:
    """The engine's share of the device, of the measured device where its total was measured."""
    planned = planned_total(plan)
    size = measurement.device_total_bytes if measurement is not None else None
    of = planned if size is None else size
    share = _ratio(plan.budget_bytes, plan.inputs.device_total_bytes)
    if of.expected == plan.inputs.device_total_bytes:
        expected = plan.budget_bytes
    else:
        expected = int(of.expected * share)
    return ByteRange(min(int(of.low * share), expected), expected, max(int(of.high * share), expected))


def _ratio(one: float, other: float) -> float:
    return one / other if other else 0.0


def _speaking(plan: Plan, measurement: Measurement, rank: RankLedger) -> tuple[Figure, ...]:
    """Figures of a kind of rank, over all its ranks."""
    return one_figure(figure for figure in measurement.figures if rank in ledgers_of(plan, figure))


def reconciled_plan(plan: Plan, measurement: Measurement) -> Plan:
    """The plan with measured entries in the place of calculated ones, each with its source, and the pool as it was measured; what
    was not measured of the pool is recomputed from the measured terms.

    Verdict and printed lines stay the plan's, which a note says.
    """
    pool = _measured_pool(plan, measurement)
    ranks: list[RankLedger] = []
    notes: list[str] = []
    for rank in plan.ranks:
        found = measured_ledger(rank.entries, _speaking(plan, measurement, rank))
        notes.extend(found.notes)
        ranks.append(_with_entries(plan, rank, found, pool, measurement))
    host = measured_ledger(
        plan.host, [replace(item, on_host=False) for item in measurement.figures if item.on_host]
    )
    notes.extend(host.notes)
    names = len(host.measured) + sum(
        entry.evidence.kind.value == "measured" for rank in ranks for entry in rank.entries
    )
    note = (
        f"{names} line(s) of the ledger are measured; verdict and printed lines are those of the plan before"
    )
    return replace(
        plan,
        ranks=tuple(ranks),
        kv_pool=pool,
        host=host.entries,
        notes=(*plan.notes, *dict.fromkeys(notes), note),
    )


def _with_entries(
    plan: Plan, rank: RankLedger, found: MeasuredLedger, pool: KvPool | None, measurement: Measurement
) -> RankLedger:
    entries = found.entries
    held = [entry for entry in entries if entry.is_remainder]
    if (
        pool is not None
        and plan.kv_pool is not None
        and len(held) == 1
        and held[0].name not in found.measured
    ):
        entries = tuple(
            _with_pool(entry, rank, plan.kv_pool, pool, measurement) if entry is held[0] else entry
            for entry in entries
        )
    weights = rank.weights
    sums = [entry for entry in entries if entry.owner is Owner.WEIGHTS]
    if any(entry.name in found.measured for entry in sums):
        weights = replace(weights, device_bytes=total(entry.bytes for entry in sums))
    return replace(rank, entries=entries, weights=weights)


def _with_pool(
    entry: Entry, rank: RankLedger, before: KvPool, now: KvPool, measurement: Measurement
) -> Entry:
    """The pool's line with the blocks that were measured or recomputed."""
    others = _pool_bytes(rank) - entry.bytes
    block = max(_pool_bytes(rank).expected // max(before.num_blocks.expected, 1), 1)
    told = _main(measurement)
    exact = told is not None and (told.num_blocks is not None or told.bytes is not None)
    sizes = [
        max(count * block - others.expected, 0)
        for count in (now.num_blocks.low, now.num_blocks.expected, now.num_blocks.high)
    ]
    evidence = entry.evidence
    if exact and told is not None:
        evidence = measured_evidence(
            told.evidence.source,
            f"{now.num_blocks.expected} blocks x {block} B; in place of the calculated {entry.bytes.expected} B",
        )
    else:
        evidence = replace(evidence, formula=f"{evidence.formula}; recomputed from measured terms")
    return replace(entry, bytes=ByteRange(*sizes), evidence=evidence)


def _main(measurement: Measurement) -> MeasuredPool | None:
    """The pool that tokens are counted in, with the bytes of all pools."""
    found = main_pool(measurement)
    return None if found is None else replace(found, bytes=total_bytes(measurement))


def _measured_pool(plan: Plan, measurement: Measurement) -> KvPool | None:
    """The pool with measured figures where they were told, with recomputed ones elsewhere."""
    pool, told = plan.kv_pool, _main(measurement)
    if pool is None:
        return None
    again = recomputed_budget(plan, measurement)
    blocks = pool.num_blocks if again is None else _counts(again.num_blocks)
    if told is not None and told.num_blocks is not None:
        blocks = told.num_blocks
    elif told is not None and told.bytes is not None:
        blocks = _blocks_of(told.bytes, pool)
    elif told is not None and told.tokens is not None:
        per_block = _ratio(pool.tokens.expected, pool.num_blocks.expected)
        if per_block:
            blocks = IntRange(
                *(
                    round(count / per_block)
                    for count in (told.tokens.low, told.tokens.expected, told.tokens.high)
                )
            )
    count = pool.num_blocks.expected
    size = _scaled(blocks, pool.bytes.expected, count)
    tokens = _scaled(blocks, pool.tokens.expected, count)
    many = _times(blocks, pool.max_concurrency.expected, count)
    return replace(
        pool,
        bytes=size if told is None or told.bytes is None else _printed(told.bytes, size),
        num_blocks=blocks,
        tokens=told.tokens if told and told.tokens else tokens,
        max_concurrency=told.max_concurrency
        if told and told.max_concurrency and told.context_len in (None, pool.context_len)
        else many,
        steady_concurrency=_times(blocks, pool.steady_concurrency.expected, count),
    )


def _printed(told: ByteRange, counted: IntRange) -> IntRange:
    """The printed bytes; where the print is coarser than the blocks and allows them, theirs."""
    found = narrowed(told, ByteRange(counted.low, counted.expected, counted.high))
    return IntRange(found.low, found.expected, found.high)


def _blocks_of(size: ByteRange, pool: KvPool) -> IntRange:
    per_block = _ratio(pool.bytes.expected, pool.num_blocks.expected) or 1
    return IntRange(*(int(end / per_block) for end in (size.low, size.expected, size.high)))


def _scaled(counts: IntRange, size: int, of: int) -> IntRange:
    """`size` of `of` blocks for other counts of them."""
    return IntRange(*(count * size // of if of else 0 for count in _ends(counts)))


def _times(counts: IntRange, size: float, of: int) -> FloatRange:
    return FloatRange(*(count * size / of if of else 0.0 for count in _ends(counts)))


def _counts(found: Interval) -> IntRange:
    return IntRange(int(found.low), int(found.expected), int(found.high))
