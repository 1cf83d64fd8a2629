"""Verdicts: what holds, what does not, what cannot be told, and what would help."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support import DEEPSEEK_V3, GEMMA_3_27B, H100, LLAMA_3_1_8B, QWEN3_30B_A3B, checkpoint, question
from vramledger.answer import Plan
from vramledger.engines.vllm.flags import AUTO
from vramledger.engines.vllm.planner import plan
from vramledger.hardware.catalogue import find_device
from vramledger.units import GIB


def ask(config: dict[str, Any], *, device: str = "H100-80GB", concurrency: int = 1, **values: Any) -> Plan:
    parallel, flags = question(values)
    return plan(
        checkpoint(config),
        find_device(device),
        parallel=parallel,
        flags=flags,
        concurrency=concurrency,
        remedies=True,
    )


def test_a_share_that_leaves_no_room_for_the_context_fails_at_start_up() -> None:
    verdict = ask(LLAMA_3_1_8B, gpu_memory_utilization=1.0, max_cudagraph_capture_size=1).verdict
    assert verdict.holds is False
    assert "start-up" in verdict.summary
    assert verdict.shortfall_bytes > 0.2 * GIB
    assert verdict.remedies


def test_a_pool_of_stated_size_may_exceed_the_device() -> None:
    roomy = ask(LLAMA_3_1_8B, kv_cache_memory_bytes=40 * GIB)
    tight = ask(LLAMA_3_1_8B, kv_cache_memory_bytes=61 * GIB)
    over = ask(LLAMA_3_1_8B, kv_cache_memory_bytes=70 * GIB)
    assert [found.verdict.holds for found in (roomy, tight, over)] == [True, None, False]
    assert "leaves out of its budget" in tight.verdict.missing[0]
    assert over.verdict.shortfall_bytes > 0


def test_replicas_share_the_requests() -> None:
    alone = ask(QWEN3_30B_A3B, tp=2, concurrency=30)
    assert alone.verdict.holds is False
    assert ask(QWEN3_30B_A3B, tp=2, dp=2, concurrency=30).verdict.holds is True
    assert "replica" in ask(QWEN3_30B_A3B, tp=2, dp=2, concurrency=30).verdict.summary


def test_no_more_sequences_run_than_the_engine_allows() -> None:
    found = ask(LLAMA_3_1_8B, max_model_len=128, concurrency=2000).verdict
    assert found.holds is False
    assert found.shortfall_bytes == 0
    assert "--max-num-seqs 2000" in found.remedies


def test_auto_holds_with_whatever_fits() -> None:
    found = ask(LLAMA_3_1_8B, device="L4", max_model_len=AUTO)
    assert found.verdict.holds is True
    assert found.kv_pool is not None
    longest = found.kv_pool.longest_context
    assert longest.low < longest.expected < longest.high
    assert f"{longest.low:,}" in found.verdict.summary


def test_requests_are_counted_in_whole_ones() -> None:
    summary = ask(LLAMA_3_1_8B).verdict.summary
    assert re.fullmatch(r"holds for 3 requests of 131,072 tokens at once", summary)


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (GEMMA_3_27B, {}),
        (DEEPSEEK_V3, {"tp": 8}),
        (LLAMA_3_1_8B, {"concurrency": 12}),
        (LLAMA_3_1_8B, {"num_gpu_blocks_override": 100}),
        (LLAMA_3_1_8B, {"kv_cache_memory_bytes": GIB}),
        (LLAMA_3_1_8B, {"device": "L4"}),
    ],
)
def test_every_remedy_holds_when_it_is_taken(config: dict[str, Any], values: dict[str, Any]) -> None:
    found = ask(config, **values)
    assert found.verdict.holds is not True
    assert found.verdict.remedies
    for remedy in found.verdict.remedies:
        assert ask(config, **(values | taken(remedy))).verdict.holds is True, remedy


def taken(remedy: str) -> dict[str, Any]:
    """The flags that a remedy names."""
    if remedy.startswith("at most"):
        return {"concurrency": int(remedy.split()[2].replace(",", ""))}
    name, value = remedy.removeprefix("--").split(" ", 1)
    key = {"tensor_parallel_size": "tp"}.get(name.replace("-", "_"), name.replace("-", "_"))
    return {key: value if name == "kv-cache-dtype" else float(value) if "." in value else int(value)}


def test_a_remedy_never_repeats_what_was_asked() -> None:
    for remedy in ask(LLAMA_3_1_8B, kv_cache_memory_bytes=GIB).verdict.remedies:
        assert "utilization" not in remedy
        assert remedy != "--max-model-len 131072"


def test_without_asking_no_alternative_is_planned() -> None:
    parallel, flags = question({"tp": 8})
    found = plan(checkpoint(DEEPSEEK_V3), H100, parallel=parallel, flags=flags)
    assert found.verdict.holds is False
    assert found.verdict.remedies == ()


@given(st.integers(1, 40), st.integers(1, 40))
def test_what_holds_for_many_holds_for_fewer(first: int, second: int) -> None:
    fewer, more = sorted((first, second))
    if ask(QWEN3_30B_A3B, tp=2, concurrency=more).verdict.holds:
        assert ask(QWEN3_30B_A3B, tp=2, concurrency=fewer).verdict.holds


def test_a_device_of_more_memory_never_turns_a_plan_away() -> None:
    last = 0
    for gib in range(20, 100, 4):
        device = replace(H100, total_bytes=gib * GIB, total_low_bytes=gib * GIB, total_high_bytes=gib * GIB)
        parallel, flags = question(
            {"max_model_len": 32_768, "max_num_seqs": 64, "max_num_batched_tokens": 2048}
        )
        holds = plan(checkpoint(LLAMA_3_1_8B), device, parallel=parallel, flags=flags).verdict.holds
        rank = {False: 0, None: 1, True: 2}[holds]
        assert rank >= last
        last = rank
    assert last == 2


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"num_gpu_blocks_override": 2}, "--num-gpu-blocks-override 2"),
        ({"kv_cache_memory_bytes": 1 << 20}, "--kv-cache-memory-bytes"),
    ],
)
def test_a_pool_set_by_a_flag_is_no_shortfall_of_memory(flags: dict[str, Any], named: str) -> None:
    found = ask(LLAMA_3_1_8B, max_model_len=8192, **flags).verdict
    assert found.holds is False
    assert found.shortfall_bytes == 0
    assert named in found.summary
