"""Which way to run out threatens, in the words of a diagnosis."""

from __future__ import annotations

from typing import Any

import pytest

from five_kinds import planned
from vramledger.diagnosis.terms import FailureClass
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.findings import (
    Finding,
    Level,
    Shortage,
    findings,
    refill_s,
    stalls,
    worst_first,
)
from vramledger.simulation.outcome import PoolCounters, PoolSample, Run
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings, Slo
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.summary import GroupSummary, pool_summary

MS = 10**9
STEP = StepModel(
    overhead_ps=MS, floor_ps=9 * MS, token_ps=MS // 100, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("test")
)  # fmt: skip
SETTINGS = SimulationSettings(
    layout=PoolLayout(num_blocks=101, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1),
    scheduler=SchedulerSettings(max_num_seqs=8, max_num_batched_tokens=2048, max_model_len=4096),
    step=STEP,
    slo=Slo(ttft_ms=1000),
)


def sample(step: int, used: int, **changes: int) -> PoolSample:
    fields = {"at_ps": step * MS, "replica": 0, "used_blocks": used, "cached_blocks": 0, "free_blocks": 100 - used,
              "running": 3, "waiting": 2, "logical_tokens": used * 16, "physical_tokens": used * 16 - 10}  # fmt: skip
    return PoolSample(**(fields | changes))


def found(
    samples: list[PoolSample], counters: PoolCounters | None = None, plan: Any = None, **requests: Any
) -> dict[Shortage, Finding]:
    run = Run(counters=(counters or PoolCounters(),), samples=tuple(samples), end_ps=10 * MS)
    fields: dict[str, Any] = {
        "name": "all", "offered": 10, "prompt_tokens": 1000, "longest_prompt_tokens": 3000,
    }  # fmt: skip
    summary = GroupSummary(**(fields | requests))
    pool = pool_summary(samples, SETTINGS.layout)
    return {item.shortage: item for item in findings(run, SETTINGS, summary, pool, plan)}


def test_the_words_are_those_of_a_diagnosis() -> None:
    assert [item.value for item in Shortage] == [
        item.value for item in FailureClass if item is not FailureClass.NONE
    ]


def test_decode_growth_is_told_with_its_time() -> None:
    quiet = found([sample(0, 10), sample(1, 50)])[Shortage.DECODE_GROWTH]
    assert (quiet.level, quiet.at_ps) == (Level.CLEAR, -1)
    near = found([sample(0, 10), sample(1, 96), sample(2, 97)])[Shortage.DECODE_GROWTH]
    assert (near.level, near.at_ps) == (Level.CLOSE, MS)
    counters = PoolCounters(preemptions=4, recomputed_tokens=500, computed_tokens=5000)
    hit = found([sample(0, 10), sample(1, 100)], counters, preempted=3)[Shortage.DECODE_GROWTH]
    assert hit.level is Level.THREATENS
    assert "4 preemptions of 3 requests" in hit.summary
    assert "500 tokens computed again (10.0%)" in hit.summary


def test_without_a_plan_the_ledgers_phases_are_untold() -> None:
    told = found([sample(0, 10)])
    assert {told[item].level for item in (Shortage.LOAD_TIME, Shortage.WARM_UP, Shortage.PREFILL_SPIKE)} == {
        Level.UNTOLD
    }


def test_a_plan_tells_of_its_phases() -> None:
    roomy = planned("dense", max_num_batched_tokens=2048)
    told = found([sample(0, 10)], plan=roomy)
    assert told[Shortage.LOAD_TIME].level is Level.CLEAR
    assert told[Shortage.PREFILL_SPIKE].level is Level.CLEAR
    assert "2,048" in told[Shortage.PREFILL_SPIKE].summary
    small = planned("dense", max_num_batched_tokens=1024)
    assert found([sample(0, 10)], plan=small)[Shortage.PREFILL_SPIKE].level is Level.THREATENS


def test_waste_of_last_blocks_is_fragmentation() -> None:
    assert found([sample(0, 50)])[Shortage.FRAGMENTATION].level is Level.CLEAR
    wasteful = found([sample(0, 50, physical_tokens=400)])[Shortage.FRAGMENTATION]
    assert wasteful.level is Level.CLOSE
    assert "50.0%" in wasteful.summary


def test_a_restart_brings_all_back_at_once() -> None:
    # 50 blocks of 16 tokens run and 2 wait with the mean prompt of 100: 1,000 tokens, one step of 1 + 10 ms.
    herd = found([sample(0, 10), sample(1, 50)])[Shortage.RECOVERY]
    assert (herd.level, herd.at_ps) == (Level.CLEAR, MS)
    assert "5 requests and 1,000 tokens" in herd.summary
    assert refill_s(STEP, 1000, 2048) == 0.011
    assert refill_s(STEP, 4096 + 100, 2048) == pytest.approx(2 * (0.001 + 0.02048) + 0.010)
    assert found([sample(0, 99, waiting=40)])[Shortage.RECOVERY].level is Level.CLOSE


def test_what_never_fits_is_named() -> None:
    summary = GroupSummary(
        name="all", offered=10, never_fits=2, never_fits_numbers=(3, 7), livelocked=1, livelocked_numbers=(5,)
    )
    never, livelock = stalls(summary, SETTINGS, pool_summary([], SETTINGS.layout))
    assert "numbers 3, 7" in never
    assert "max_model_len 4,096" in never
    assert "number 5" in livelock
    levels = [item.level for item in worst_first(found([sample(0, 99)], livelocked=1).values())]
    assert levels == sorted(levels, key=list(Level).index)
