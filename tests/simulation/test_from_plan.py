"""Plans of several engines as a simulation takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vramledger.answer import Plan
from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind
from vramledger.models.checkpoint import Checkpoint
from vramledger.planning import load_model, plan
from vramledger.simulation.from_plan import layout_of, scheduler_of
from vramledger.simulation.outcome import Status
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import Scheduling, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.columns import Workload, columns_of
from vramledger.workload.request import Request, WorkloadHeader

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def llama() -> Checkpoint:
    return load_model(EXAMPLES / "Llama-3.1-8B-Instruct")


@pytest.fixture(scope="module")
def gemma() -> Checkpoint:
    return load_model(EXAMPLES / "gemma-3-27b-it")


def on_h100(model: Checkpoint, engine: str, **flags: Any) -> Plan:
    return plan(model, "H100", engine=engine, **flags)


def test_vllm_0_19_as_its_own_config_prints_it(llama: Checkpoint) -> None:
    found = plan(
        llama,
        "RTX 4090",
        engine="vllm==0.19.0",
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        max_model_len=32768,
    )
    scheduler, layout = scheduler_of(found), layout_of(found, 2588)
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens, scheduler.max_model_len) == (
        256,
        2048,
        32768,
    )
    assert scheduler.scheduling is Scheduling.VLLM
    assert scheduler.async_scheduling and scheduler.reserve_full_prompt and scheduler.prefix_caching
    assert scheduler.chunked_prefill
    assert (layout.num_blocks, layout.usable_blocks, layout.block_bytes) == (2588, 2587, 16 * 131072)
    assert layout.groups == (BlockGroup(block_tokens=16),)
    assert not layout.uncached_first


@pytest.mark.parametrize(
    ("version", "reserves", "is_async", "uncached_first"),
    [
        ("0.12.0", False, False, False),
        ("0.18.1", False, True, False),
        ("0.20.2", True, True, False),
        ("0.24.0", True, True, True),
    ],
)
def test_vllm_by_version(
    llama: Checkpoint, version: str, reserves: bool, is_async: bool, uncached_first: bool
) -> None:
    found = on_h100(llama, f"vllm=={version}")
    scheduler = scheduler_of(found)
    assert (scheduler.reserve_full_prompt, scheduler.async_scheduling) == (reserves, is_async)
    assert layout_of(found).uncached_first is uncached_first
    assert layout_of(found).retention_tokens is None


def test_vllm_keeps_windows_and_states_sparsely_since_0_29(llama: Checkpoint) -> None:
    assert layout_of(on_h100(llama, "vllm==0.28.0")).retention_tokens is None
    assert layout_of(on_h100(llama, "vllm==0.29.0")).retention_tokens == 0


def test_flags_reach_the_scheduler(llama: Checkpoint) -> None:
    found = on_h100(llama, "vllm", enable_prefix_caching=False, async_scheduling=False)
    scheduler = scheduler_of(found, watermark=0.02)
    assert not scheduler.prefix_caching
    assert not scheduler.async_scheduling
    assert scheduler.watermark == 0.02


def test_the_queue_is_ordered_and_prompts_are_cut_as_the_flags_say(llama: Checkpoint) -> None:
    found = scheduler_of(
        plan(
            llama,
            "H100-80GB",
            scheduling_policy="priority",
            long_prefill_token_threshold=1024,
            scheduler_reserve_full_isl=False,
        )
    )
    assert (found.priority, found.long_prefill_token_threshold, found.reserve_full_prompt) == (
        True,
        1024,
        False,
    )
    usual = scheduler_of(plan(llama, "H100-80GB"))
    assert (usual.priority, usual.long_prefill_token_threshold, usual.reserve_full_prompt) == (False, 0, True)


def test_v0_is_refused(llama: Checkpoint) -> None:
    with pytest.raises(InputError, match="V0"):
        scheduler_of(on_h100(llama, "vllm==0.6.6"))


def test_windows_are_the_models_and_bound_what_an_admission_counts(gemma: Checkpoint) -> None:
    found = on_h100(gemma, "vllm==0.24.0", max_model_len=32768)
    groups = layout_of(found).groups
    assert groups == layout_of(found, model=gemma.model).groups
    windows = [group for group in groups if group.kind is GroupKind.WINDOW]
    # 52 sliding layers of 62, in groups as wide as the ten that keep everything.
    assert (len(windows), len(groups)) == (6, 7)
    assert {group.window_tokens for group in windows} == {1024}
    assert all(group.admission_blocks for group in windows)
    older = on_h100(gemma, "vllm==0.19.0", max_model_len=32768)
    assert not any(group.admission_blocks for group in layout_of(older, model=gemma.model).groups)


def test_of_pools_apart_the_one_that_is_full_first_is_simulated() -> None:
    oss = load_model(EXAMPLES / "gpt-oss-120b")
    found = plan(oss, "H200", engine="sglang", context_length=32768)
    assert found.kv_pool is not None
    full, window = found.kv_pool.groups
    assert full.pool_blocks is not None and window.pool_blocks is not None
    assert full.blocks_per_request / full.pool_blocks.expected > (
        window.blocks_per_request / window.pool_blocks.expected
    )
    assert layout_of(found, model=oss.model).num_blocks == full.pool_blocks.expected


def test_sglang_prints_the_same_limit_of_requests(llama: Checkpoint) -> None:
    found = on_h100(llama, "sglang")
    scheduler = scheduler_of(found)
    assert f"max_running_requests={scheduler.max_num_seqs}," in found.printed[-1]
    assert (scheduler.scheduling, scheduler.max_num_batched_tokens) == (Scheduling.SGLANG, 8192)
    assert (scheduler.initial_new_token_ratio, round(scheduler.min_new_token_ratio, 3)) == (0.7, 0.098)


def test_tensorrt_llm_by_policy(llama: Checkpoint) -> None:
    assert scheduler_of(on_h100(llama, "tensorrt-llm")).scheduling is Scheduling.TRTLLM_NO_EVICT
    evicting = on_h100(llama, "tensorrt-llm", capacity_scheduler_policy="MAX_UTILIZATION")
    assert scheduler_of(evicting).scheduling is Scheduling.TRTLLM_MAX_UTILIZATION


def test_tensorrt_llm_bounds_prompts_by_a_step_and_answers_by_the_sequence(llama: Checkpoint) -> None:
    found = on_h100(llama, "tensorrt-llm", max_seq_len=32768)
    scheduler = scheduler_of(found)
    assert (scheduler.chunked_prefill, scheduler.max_num_batched_tokens, scheduler.max_model_len) == (
        False,
        8192,
        32768,
    )
    step = StepModel(
        overhead_ps=10**9,
        floor_ps=0,
        token_ps=0,
        decode_seq_ps=0,
        kv_token_ps=0,
        evidence=assumed("this test"),
    )
    asked = [Request(arrival_ns=0, prompt_tokens=prompt, output_tokens=900) for prompt in (8000, 8193)]
    _, columns = simulate(
        Workload.of(WorkloadHeader(name="w", source="here"), columns_of(asked)),
        SimulationSettings(layout=layout_of(found), scheduler=scheduler, step=step),
    )
    assert columns is not None
    assert columns.status.tolist() == [Status.FINISHED, Status.NEVER_FITS]
    # 8,900 tokens in all: more than a step, and less than max_seq_len.
    assert columns.output_tokens.tolist() == [900, 0]


def test_llamacpp_has_slots(llama: Checkpoint) -> None:
    scheduler = scheduler_of(on_h100(llama, "llamacpp", parallel=8))
    assert scheduler.scheduling is Scheduling.LLAMACPP
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (8, 2048)
    assert not scheduler.reserve_full_prompt


def test_every_engine_has_a_pool_and_a_scheduler(llama: Checkpoint) -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm", "llamacpp", "transformers"):
        found = on_h100(llama, engine)
        assert found.kv_pool is not None
        layout = layout_of(found)
        assert layout.num_blocks * layout.key_tokens == found.kv_pool.tokens.expected
        assert layout.num_blocks * layout.block_bytes == found.kv_pool.bytes.expected
        assert scheduler_of(found).max_num_seqs > 0


def test_sglang_runs_as_many_as_it_has_states_and_shares_what_was_asked_for() -> None:
    hybrid = plan(load_model(EXAMPLES / "Qwen3.5-27B"), "H100", engine="sglang")
    assert hybrid.kv_pool is not None
    states = next(group for group in hybrid.kv_pool.groups if group.kind == "mamba")
    assert states.pool_blocks is not None
    # SGLang holds five slots a request ready (kv_cache_configurator.py).
    assert scheduler_of(hybrid).max_num_seqs == states.pool_blocks.expected // 5 < 10
    deep = load_model(EXAMPLES / "DeepSeek-V3")
    flags: dict[str, Any] = {"tp": 8, "context_length": 16384, "max_running_requests": 512}
    assert scheduler_of(plan(deep, "H200", engine="sglang", **flags)).max_num_seqs == 512
    shared = plan(deep, "H200", engine="sglang", dp=8, enable_dp_attention=True, **flags)
    assert scheduler_of(shared).max_num_seqs == 64
