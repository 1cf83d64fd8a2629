"""The policy for an engine and a goal."""

from __future__ import annotations

import pytest

from vramledger.admission.defaults import Goal, default_settings
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.engines import engine_names, find_full_pool
from vramledger.engines.full_pool import WhenFull
from vramledger.errors import FlagError
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout


def chosen(goal: Goal, engine: str, **settings: object) -> PolicySettings:
    return default_settings(
        goal,
        find_full_pool(engine)(settings).when_full,
        layout=PoolLayout(num_blocks=1000, groups=(BlockGroup(block_tokens=16),)),
        max_model_len=4096,
        max_running=64,
        step_tokens=2048,
    )


@pytest.mark.parametrize("goal", list(Goal))
def test_where_requests_would_fail_all_that_they_may_grow_to_is_reserved(goal: Goal) -> None:
    assert chosen(goal, "llamacpp").reservation is Reservation.NO_EVICT
    assert chosen(goal, "tensorrt-llm").reservation is Reservation.NO_EVICT


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
def test_an_engine_that_preempts_is_given_what_answers_will_likely_need(engine: str) -> None:
    deadlines, throughput = chosen(Goal.DEADLINES, engine), chosen(Goal.THROUGHPUT, engine)
    assert (deadlines.reservation, deadlines.puts_behind) == (Reservation.QUANTILE, True)
    assert (throughput.reservation, throughput.puts_behind) == (Reservation.OPTIMISTIC, False)
    assert throughput.watermark_blocks == 20
    assert chosen(Goal.NO_FAILURE, engine).reservation is Reservation.NO_EVICT


def test_what_an_engine_does_when_its_pool_is_full_depends_on_its_settings() -> None:
    def when_full(engine: str, **settings: object) -> WhenFull:
        return find_full_pool(engine)(settings).when_full

    assert when_full("llama.cpp") is WhenFull.FAIL
    assert when_full("llamacpp", parallel=4) is WhenFull.NEVER
    assert when_full("llamacpp", parallel=4, kv_unified=True) is WhenFull.FAIL
    assert when_full("llamacpp", parallel=1, kv_unified=True) is WhenFull.NEVER
    assert when_full("tensorrt-llm", capacity_scheduler_policy="MAX_UTILIZATION") is WhenFull.RECOMPUTE
    assert when_full("vllm==0.32.0") is WhenFull.RECOMPUTE


def test_every_engine_says_where_it_is_written() -> None:
    assert all(find_full_pool(engine)({}).source for engine in engine_names())
    with pytest.raises(FlagError, match="unknown engine 'abc'"):
        find_full_pool("abc")
