"""What keeping, moving and dropping a context costs: by hand, as properties, and on coding agents' conversations."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings, ToolWait
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.tool_wait_runs import ToolWaitRun, run_tool_waits
from vramledger.simulation.tool_waits import (
    Bill,
    WaitCosts,
    compare_tool_waits,
    compared,
    discarded,
    swapped,
    wait_at,
)
from vramledger.workload.request import Request, WorkloadHeader
from vramledger.workload.wait import Wait

pytest.importorskip("numpy")

MS = 1_000_000_000
TRACE = Path(__file__).parents[2] / "data/traces/agentic-coding-claude-code/sessions.first-30-small.jsonl.gz"
STEP = StepModel(
    overhead_ps=MS,
    floor_ps=0,
    token_ps=1_000_000,
    decode_seq_ps=0,
    kv_token_ps=0,
    evidence=assumed("1 ms and 1 us a token"),
)
COSTS = WaitCosts(
    step=STEP,
    chunk_tokens=1000,
    other_tokens=5000,
    kv_bytes_per_token=100,
    host_link_bytes_per_s=1_000_000,
    flops_per_token=10,
    flops_per_pair=1,
)


def test_a_context_computed_anew_holds_itself_so_far_and_everyone_else() -> None:
    # Chunks of 1000, 1000 and 500 tokens in 2, 2 and 1.5 ms.
    assert discarded(2500, COSTS) == Bill(
        stalled_token_ps=2 * MS * 6000 + 2 * MS * 7000 + 3 * MS // 2 * 7500,
        recomputed_tokens=2500,
        recompute_ps=11 * MS // 2,
        recompute_pairs=1000 * 500 + 1000 * 1500 + 500 * 2250,
    )


def test_a_swap_holds_the_context_on_both_ways_and_stays_if_it_is_wanted_before() -> None:
    # 1000 tokens of 100 bytes at 1 MB/s: 100 ms a way.
    assert swapped(1000, 3000 * MS, COSTS) == Bill(idle_token_ps=1000 * 200 * MS, link_bytes=200_000)
    assert swapped(1000, 40 * MS, COSTS) == Bill(idle_token_ps=1000 * 40 * MS, link_bytes=100_000)


def test_the_wait_at_a_quantile_is_one_that_was_seen() -> None:
    waits = [Wait(n, 100, ns) for n, ns in enumerate((50, 10, 20, 40, 30))]
    assert [wait_at(waits, q) for q in (0.2, 0.21, 0.5, 0.9, 1.0)] == [10, 20, 30, 50, 50]
    with pytest.raises(InputError, match="quantile"):
        wait_at(waits, 0.0)


waits = st.lists(
    st.builds(Wait, st.just(0), st.integers(1, 200_000), st.integers(0, 10**12)), min_size=1, max_size=30
)


@given(waits)
def test_nothing_wastes_less_than_hindsight_and_patience_without_end_is_preserving(some: list[Wait]) -> None:
    rows = {(row.policy, row.wait_quantile): row for row in compared(some, COSTS, quantiles=(0.5, 1.0))}
    least = rows["least in hindsight", None]
    for row in rows.values():
        assert row.waste_token_s == pytest.approx(row.idle_token_s + row.stalled_token_s)
        if row.wait_quantile is None:
            assert least.waste_token_s <= row.waste_token_s * (1 + 1e-12)
    for fallback in ("swap", "discard"):
        patient = rows[f"preserve, then {fallback}", 1.0]
        assert patient.idle_token_s == rows["preserve", None].idle_token_s
        assert (patient.found_share, patient.link_bytes, patient.recomputed_tokens) == (1.0, 0, 0)


@given(waits)
def test_more_patience_recomputes_and_moves_less_and_holds_more(some: list[Wait]) -> None:
    rows = compared(some, COSTS, quantiles=(0.1, 0.5, 0.9, 1.0))
    for fallback in ("swap", "discard"):
        patient = [row for row in rows if row.policy == f"preserve, then {fallback}"]
        assert [row.recomputed_tokens for row in patient] == sorted(
            (row.recomputed_tokens for row in patient), reverse=True
        )
        assert [row.link_bytes for row in patient] == sorted(
            (row.link_bytes for row in patient), reverse=True
        )
        assert [row.found_share for row in patient] == sorted(row.found_share for row in patient)


def settings(blocks: int = 12_000) -> SimulationSettings:
    return SimulationSettings(
        layout=PoolLayout(num_blocks=blocks, groups=(BlockGroup(block_tokens=64),), block_bytes=64 * 131_072),
        scheduler=SchedulerSettings(max_num_seqs=32, max_num_batched_tokens=8192, max_model_len=300_000),
        step=StepModel(
            overhead_ps=2 * MS,
            floor_ps=8 * MS,
            token_ps=16_000_000,
            decode_seq_ps=0,
            kv_token_ps=40_000,
            evidence=assumed("an 8B model on one card"),
        ),
        host_link_bytes_per_s=25_000_000_000,
        host_swap_bytes=200 * 2**30,
    )


def test_coding_agents_waits_are_long_enough_that_only_some_are_worth_the_memory() -> None:
    pytest.importorskip("pyarrow")
    from vramledger.workload.columnar.reading import read_workload

    rows = {
        (row.policy, row.wait_quantile): row for row in compare_tool_waits(read_workload(TRACE), settings())
    }
    preserve, discard, swap = (rows[name, None] for name in ("preserve", "discard", "swap"))
    assert preserve.waits == discard.waits == swap.waits > 600
    assert swap.waste_token_s < discard.waste_token_s < preserve.waste_token_s
    # Waits have a long tail: preserving the shorter nine tenths takes less than half of preserving all.
    patient = rows["preserve, then discard", 0.9]
    assert patient.idle_token_s < preserve.idle_token_s / 2
    assert patient.recomputed_tokens < discard.recomputed_tokens / 8
    assert swap.link_bytes <= 2 * 131_072 * discard.recomputed_tokens


@pytest.mark.parametrize("token_ps", [16_000_000, 160_000_000])
def test_a_learned_patience_wastes_about_as_little_as_the_best_fixed_one(token_ps: int) -> None:
    """Whether to hold or to drop depends on what computing anew costs; none of the fixed ways is good on both instances."""
    pytest.importorskip("pyarrow")
    from vramledger.workload.columnar.reading import read_workload

    instance = settings()
    instance = replace(instance, step=replace(instance.step, token_ps=token_ps), host_link_bytes_per_s=0)
    rows = compare_tool_waits(read_workload(TRACE), instance)
    waste = {(row.policy, row.wait_quantile): row.waste_token_s for row in rows}
    learned, hindsight = waste.pop(("learned", None)), waste.pop(("least in hindsight", None))
    assert hindsight < learned < 1.05 * min(waste.values())
    assert learned < max(waste["preserve", None], waste["discard", None]) / 3


def test_a_context_is_held_while_nobody_waits_and_given_up_for_who_does() -> None:
    from vramledger.workload.columns import Workload, columns_of

    def run_of(others: int) -> dict[ToolWait, ToolWaitRun]:
        turns = [
            Request(
                arrival_ns=0,
                prompt_tokens=900 + 100 * turn,
                output_tokens=20,
                blocks=tuple(range(16 + turn)),
                parent=turn - 1 if turn else None,
                pause_ns=10_000_000_000 if turn else 0,
            )
            for turn in range(3)
        ]
        # From 2 s on, while the first turn's wait lasts.
        crowd = [
            Request(arrival_ns=2_000_000_000, prompt_tokens=1200, output_tokens=200) for _ in range(others)
        ]
        workload = Workload.of(
            WorkloadHeader(name="turns", source="this test", block_tokens=64), columns_of([*turns, *crowd])
        )
        instance = replace(settings(blocks=60), host_link_bytes_per_s=0)
        found = run_tool_waits(workload, instance, waits=(ToolWait.PRESERVE, ToolWait.LEARNED))
        return {run.tool_wait: run for run in found}

    alone, crowded = run_of(0), run_of(6)
    assert alone[ToolWait.LEARNED].kept_token_s == alone[ToolWait.PRESERVE].kept_token_s > 10_000
    assert crowded[ToolWait.LEARNED].kept_token_s < crowded[ToolWait.PRESERVE].kept_token_s
    assert crowded[ToolWait.LEARNED].finished == crowded[ToolWait.PRESERVE].finished == 2


def test_runs_agree_on_who_is_served_and_differ_in_what_it_took() -> None:
    from vramledger.workload.columns import Workload, columns_of

    requests = []
    for conversation in range(6):
        blocks = tuple(1000 * conversation + n for n in range(20))
        for turn in range(4):
            requests.append(
                Request(
                    arrival_ns=conversation * 1_000_000,
                    prompt_tokens=400 + 200 * turn,
                    output_tokens=40,
                    blocks=blocks[: 7 + 3 * turn],
                    parent=4 * conversation + turn - 1 if turn else None,
                    pause_ns=turn * 200_000_000,
                )
            )
    requests.sort(key=lambda request: request.arrival_ns)
    workload = Workload.of(
        WorkloadHeader(name="turns", source="this test", block_tokens=64), columns_of(requests)
    )
    runs = {run.tool_wait: run for run in run_tool_waits(workload, settings(blocks=60))}
    assert {run.finished for run in runs.values()} == {18}
    assert runs[ToolWait.DISCARD].computed_tokens > runs[ToolWait.PRESERVE].computed_tokens
    assert runs[ToolWait.PRESERVE].kept_token_s > 0 == runs[ToolWait.RELEASE].kept_token_s
    assert runs[ToolWait.SWAP].host_link_bytes > 0 == runs[ToolWait.DISCARD].host_link_bytes
    assert runs == {run.tool_wait: run for run in run_tool_waits(workload, settings(blocks=60))}


def test_a_workload_without_turns_has_nothing_to_compare() -> None:
    from vramledger.workload.columns import Workload, columns_of

    alone = Workload.of(
        WorkloadHeader(name="alone", source="this test", block_tokens=64),
        columns_of([Request(arrival_ns=0, prompt_tokens=100, output_tokens=1, blocks=(1,))]),
    )
    with pytest.raises(InputError, match="no wait to compare"):
        compare_tool_waits(alone, settings())
