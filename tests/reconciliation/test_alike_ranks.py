"""Ranks that are alike become one line, that of the rank that binds."""

from __future__ import annotations

from five_kinds import planned
from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, Measurement
from vramledger.reconciliation.measured_plan import reconciled_plan
from vramledger.reconciliation.reconcile import reconcile
from vramledger.reconciliation.result import Interval, Section
from vramledger.units import GIB, MIB


def figure(rank: int, size: int, *owners: Owner) -> Figure:
    return Figure(
        owners=owners or (Owner.WEIGHTS,),
        name="told",
        bytes=ByteRange(size - MIB, size, size + MIB),
        evidence=measured(f"run.log:{rank}"),
        ranks=(rank,),
    )


def test_the_largest_of_what_is_held() -> None:
    plan = planned("dense")
    run = Measurement(sources=(), figures=(figure(0, 8 * GIB), figure(1, 9 * GIB), figure(0, 7 * GIB)))
    found = reconcile(plan, run)
    (line,) = (item for item in found.lines if item.name == "told")
    assert line.ranks == (0, 1)
    assert line.measured == Interval(9 * GIB - MIB, 9 * GIB, 9 * GIB + MIB)
    assert line.evidence is not None
    assert line.evidence.formula == f"of 2 ranks, {7 * GIB} to {9 * GIB} B"
    (entry,) = (item for item in reconciled_plan(plan, run).ranks[0].entries if item.owner is Owner.WEIGHTS)
    assert entry.bytes.expected == 9 * GIB


def test_the_smallest_of_what_is_left() -> None:
    run = Measurement(
        sources=(),
        figures=(figure(0, 80 * GIB, Owner.KV_CACHE), figure(1, 81 * GIB, Owner.KV_CACHE)),
        allocator=tuple(
            AllocatorState(
                evidence=measured("run.log:3"),
                phase=Phase.DECODE,
                ranks=(rank,),
                device_free_bytes=ByteRange.exact((3 - rank) * GIB),
                reserved_bytes=ByteRange.exact((100 + rank) * GIB),
            )
            for rank in (0, 1)
        ),
    )
    found = reconcile(planned("dense"), run)
    (pool,) = (item for item in found.lines if item.name == "told")
    assert pool.measured is not None
    assert pool.measured.expected == 80 * GIB
    told = {item.name: item.measured for item in found.section(Section.ALLOCATOR)}
    assert told["device free at decode"] == Interval(2 * GIB, 2 * GIB, 2 * GIB)
    assert told["reserved at decode"] == Interval(101 * GIB, 101 * GIB, 101 * GIB)


def test_kinds_of_ranks_stay_apart() -> None:
    plan = planned("dense", pp=2)
    run = Measurement(sources=(), figures=tuple(figure(rank, 5 * GIB) for rank in range(4)))
    lines = [item for item in reconcile(plan, run).lines if item.name == "told"]
    assert [line.ranks for line in lines] == [rank.ranks for rank in plan.ranks]
