"""One pool told by a log and by metrics is one pool; a server's front ends are no rank."""

from __future__ import annotations

from msgspec.structs import replace

from five_kinds import planned
from vramledger.answer import Plan
from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Owner
from vramledger.measurement import HostMemory, MeasuredPool, Measurement
from vramledger.planning import plan
from vramledger.pool import IntRange
from vramledger.reconciliation.pool_lines import total_bytes
from vramledger.reconciliation.reconcile import reconcile
from vramledger.reconciliation.result import Section, Standing
from vramledger.units import GIB, MIB

LOG, METRICS = measured("run.log:1"), measured("metrics")


def pool_of(planned_as: Plan, *, rounding_bytes: int, tokens: int | None = None) -> MeasuredPool:
    pool = planned_as.kv_pool
    assert pool is not None
    size = pool.bytes.expected
    count = pool.tokens.expected if tokens is None else tokens
    return MeasuredPool(
        evidence=LOG if rounding_bytes else METRICS,
        bytes=ByteRange(size - rounding_bytes, size, size + rounding_bytes),
        tokens=IntRange(count, count, count),
    )


def test_a_pool_that_two_sources_tell_is_counted_once_by_the_closer_one() -> None:
    ours = planned("dense")
    printed, exact = pool_of(ours, rounding_bytes=5 * MIB), pool_of(ours, rounding_bytes=0)
    for pools in ((printed, exact), (exact, printed)):
        found = reconcile(ours, Measurement(sources=(), pools=pools))
        lines = [line for line in found.section(Section.POOL) if line.name == "pool"]
        assert [(line.standing, line.difference) for line in lines] == [(Standing.INSIDE, 0)]
        assert total_bytes(Measurement(sources=(), pools=pools)) == exact.bytes


def test_sources_that_contradict_each_other_both_stand() -> None:
    ours = planned("dense")
    assert ours.kv_pool is not None
    more = ours.kv_pool.tokens.high + 16
    pools = (pool_of(ours, rounding_bytes=0), pool_of(ours, rounding_bytes=0, tokens=more))
    found = reconcile(ours, Measurement(sources=(), pools=pools))
    tokens = [line.standing for line in found.section(Section.POOL) if line.name == "tokens"]
    assert tokens == [Standing.INSIDE, Standing.OUTSIDE]


def test_only_the_processes_that_hold_ranks_stand_beside_the_ranks() -> None:
    ours = plan("examples/Llama-3.1-8B-Instruct", "cpu:64GiB", kv_cache_memory_bytes=4 * GIB)
    entries = [entry for rank in ours.ranks for entry in rank.entries if entry.owner is not Owner.HEADROOM]
    held = sum(entry.bytes.expected for entry in entries)
    worker = HostMemory(process="VLLM::Worker", evidence=LOG, pid=3, rss_bytes=held, pss_bytes=held - MIB)
    front = tuple(
        replace(worker, process=name, pid=pid, rss_bytes=9 * GIB, pss_bytes=9 * GIB)
        for pid, name in enumerate(("vllm", "VLLM::EngineCore"))
    )
    found = reconcile(ours, Measurement(sources=(), host=(*front, worker)))
    total, *each = found.section(Section.HOST)
    assert total.standing is Standing.INSIDE
    assert total.measured is not None
    assert (total.measured.low, total.measured.high) == (held - MIB, held)
    assert [line.name for line in each] == ["vllm", "VLLM::EngineCore", "VLLM::Worker"]


def test_buffers_of_a_step_need_not_be_resident() -> None:
    ours = plan("examples/Llama-3.1-8B-Instruct", "cpu:64GiB", kv_cache_memory_bytes=4 * GIB)
    step = (Owner.HEADROOM, Owner.ACTIVATION, Owner.WORKSPACE)
    held = sum(entry.bytes.low for rank in ours.ranks for entry in rank.entries if entry.owner not in step)
    for size, standing in ((held, Standing.INSIDE), (held - 1, Standing.OUTSIDE)):
        worker = HostMemory(process="VLLM::Worker", evidence=LOG, pid=3, rss_bytes=size, pss_bytes=size)
        found = reconcile(ours, Measurement(sources=(), host=(worker,)))
        assert [line.standing for line in found.section(Section.HOST)] == [standing]
