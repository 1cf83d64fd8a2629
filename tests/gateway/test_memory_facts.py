"""What fills an engine's devices is told as planned or measured, and what nobody knows is not."""

from __future__ import annotations

from pathlib import Path

import vramledger
from vramledger.evidence import measured
from vramledger.gateway.counters import Counters
from vramledger.gateway.memory_facts import measured_memory, planned_memory, with_memory
from vramledger.gateway.snapshot import GatewayState, InstanceState, MemoryFacts
from vramledger.gateway.telemetry import Telemetry
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, MeasuredPool, Measurement
from vramledger.telemetry.exposition import parse_exposition

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = measured("a probe")


def test_a_plan_of_two_ranks_counts_both() -> None:
    plan = vramledger.plan(EXAMPLES / "Qwen3-30B-A3B", device="H100-80GB", tp=2, ep=True, max_model_len=32768)
    facts = planned_memory(plan)
    assert plan.kv_pool is not None
    (ledger,) = plan.ranks
    assert len(ledger.ranks) == 2
    assert facts.device_total_bytes == 2 * ledger.device_total_bytes
    assert facts.weights_bytes == 2 * ledger.owned(Owner.WEIGHTS).expected
    assert facts.pool_bytes == 2 * ledger.owned(Owner.KV_CACHE).expected
    assert facts.adapter_bytes is None
    assert facts.device_free_bytes is None
    parts = (
        facts.weights_bytes,
        facts.runtime_bytes,
        facts.pool_bytes,
        facts.graph_pool_bytes,
        facts.adapter_bytes,
    )
    assert sum(part or 0 for part in parts) == 2 * ledger.peak(Phase.DECODE).expected


def figure(owner: Owner, size: int, *ranks: int, **more: object) -> Figure:
    return Figure(owners=(owner,), name="n", bytes=ByteRange.exact(size), evidence=SAID, ranks=ranks, **more)  # type: ignore[arg-type]


def test_what_was_measured_of_one_rank_is_that_of_the_instance() -> None:
    facts = measured_memory(
        Measurement(
            sources=(),
            device_total_bytes=ByteRange.exact(101),
            figures=(
                figure(Owner.WEIGHTS, 13),
                figure(Owner.GRAPH_POOL, 3),
                figure(Owner.KV_CACHE, 99, on_host=True),
            ),
            pools=(MeasuredPool(evidence=SAID, bytes=ByteRange.exact(17)),),
            allocator=(
                AllocatorState(evidence=SAID, allocated_bytes=ByteRange.exact(29)),
                AllocatorState(
                    evidence=SAID, allocated_bytes=ByteRange.exact(31), device_free_bytes=ByteRange.exact(7)
                ),
            ),
        )
    )
    assert facts == MemoryFacts(
        device_total_bytes=101,
        device_allocated_bytes=31,
        device_free_bytes=7,
        weights_bytes=13,
        pool_bytes=17,
        graph_pool_bytes=3,
    )


def test_figures_of_several_ranks_are_summed_only_where_all_are_named() -> None:
    both = (figure(Owner.WEIGHTS, 13, 0), figure(Owner.WEIGHTS, 17, 1))
    assert measured_memory(Measurement(sources=(), tp=2, figures=both)).weights_bytes == 30
    assert measured_memory(Measurement(sources=(), tp=2, figures=both[:1])).weights_bytes is None
    nameless = (figure(Owner.WEIGHTS, 13),)
    assert measured_memory(Measurement(sources=(), tp=2, figures=nameless)).weights_bytes is None


def test_the_engines_own_word_comes_first_then_what_was_measured_then_the_plan() -> None:
    state = InstanceState(name="e", weights_bytes=1)
    said = with_memory(
        state,
        MemoryFacts(weights_bytes=2, pool_bytes=3),
        MemoryFacts(weights_bytes=4, pool_bytes=5, runtime_bytes=6),
    )
    assert (said.weights_bytes, said.pool_bytes, said.runtime_bytes, said.device_free_bytes) == (
        1,
        3,
        6,
        None,
    )
    assert with_memory(state) is state


def test_what_is_known_beforehand_is_told_by_upstream() -> None:
    telemetry = Telemetry(
        instances=["a", "b"], memory=[MemoryFacts(), MemoryFacts(weights_bytes=5, pool_bytes=7)]
    )
    states = (InstanceState(name="a"), InstanceState(name="b", weights_bytes=6))
    body, _ = telemetry.exposition(GatewayState(instances=states), Counters(), None)
    told = {
        (line.name, line.labels["upstream"]): line.value
        for line in parse_exposition(body).readings
        if line.name in ("vramledger_weights_bytes", "vramledger_pool_bytes")
    }
    assert told == {("vramledger_weights_bytes", "b"): 6, ("vramledger_pool_bytes", "b"): 7}
