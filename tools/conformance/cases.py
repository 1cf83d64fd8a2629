"""What is asked of both sides: kinds of model and the flags that change their layout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MIB = 2**20
Case = dict[str, Any]

# Kinds that 0.32 builds on the CPU platform; the others need what only the CUDA platform offers.
GPU_ONLY = ("deepseek-v3.2", "deepseek-v4", "kimi-linear", "nemotron-h")
HYBRIDS = ("qwen3-next", "qwen3.5", "nemotron-h", "granite-4", "jamba", "lfm2", "falcon-h1", "zamba2")
WINDOWED = (
    "mistral-window",
    "gemma-3",
    "gemma-3-odd",
    "gpt-oss",
    "cohere2",
    "llama-4",
    "gemma-4",
    "phi-3-window",
)


def configs() -> dict[str, dict[str, Any]]:
    """Small configs by kind: the published shapes' proportions, few layers, an odd vocabulary."""
    found: dict[str, dict[str, Any]] = json.loads((HERE / "configs.json").read_text(encoding="utf-8"))
    return found


def cases(device: str) -> list[Case]:
    """Every kind with default flags, then the flags that change a layout on the kinds they change."""
    found = configs()
    kinds = [kind for kind in found if device or kind not in GPU_ONLY]
    return [
        {"name": f"{kind}{label}", "kind": kind, "config": found[kind], **case}
        for kind in kinds
        for label, case in _variants(kind, device)
    ]


def _variants(kind: str, device: str) -> Iterator[tuple[str, Case]]:
    yield "", _case()
    yield ", tp 2", _case(tp=2)
    yield ", pp 2", _case(pp=2)
    yield ", 100 MiB and a byte", _case(pool=100 * MIB + 1)
    yield ", the longest that fits 6 MiB", _case(pool=6 * MIB, max_model_len=-1)
    yield ", too long for 2 MiB", _case(pool=2 * MIB)
    if kind in ("llama-gqa", "gemma-3", "deepseek-v3", "qwen3-next") and (device or kind != "deepseek-v3"):
        yield ", fp8 cache", _case(kv_cache_dtype="fp8")
    if kind in ("llama-gqa", "gemma-3", "gpt-oss"):
        yield ", blocks of 64", _case(block_size=64)
        yield ", 3 steps of tokens", _case(max_num_batched_tokens=3072)
        yield ", 77 blocks", _case(num_gpu_blocks_override=77)
    if kind in HYBRIDS:
        yield ", no prefix caching", _case(enable_prefix_caching=False)
        yield ", fp32 states", _case(mamba_ssm_cache_dtype="float32")
    if kind in WINDOWED:
        yield ", no hybrid manager", _case(disable_hybrid_kv_cache_manager=True)
        yield ", 512 tokens a step", _case(max_num_batched_tokens=512, max_num_seqs=64)
    if kind in ("llama-gqa", "llama-mqa", "qwen3-moe"):
        yield ", tp 4", _case(tp=4)
    if kind in ("qwen3-moe", "deepseek-v3"):
        yield ", tp 2 with whole experts", _case(tp=2, tensors="cpu", enable_expert_parallel=True)
    if kind in ("deepseek-v3", "deepseek-v4", "qwen3.5"):
        yield ", one drafted token", _case(speculative_config={"method": "mtp", "num_speculative_tokens": 1})


def _case(*, tp: int = 1, pp: int = 1, pool: int = 256 * MIB, tensors: str = "meta", **flags: Any) -> Case:
    """`stated` tells whether the plan is given the pool's bytes too: an override of the blocks excludes them.
    Expert maps are computed with, so their models are built of real `tensors`."""
    stated = "num_gpu_blocks_override" not in flags
    return {"tp": tp, "pp": pp, "pool_bytes": pool, "tensors": tensors, "args": flags, "stated": stated}


def lora_cases() -> list[Case]:
    """Every kind that takes adapters with three slots: on one rank, on two, on the stages of a pipeline, and with
    what changes the slots."""
    return [
        {"name": f"{kind}{label}", "kind": kind, "config": config, **case}
        for kind, config in configs().items()
        for label, case in _lora_variants(kind)
    ]


def _lora_variants(kind: str) -> Iterator[tuple[str, Case]]:
    slots: dict[str, Any] = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 16}
    yield "", _case(**slots)
    yield ", tp 2", _case(tp=2, **slots)
    if kind in ("llama-gqa", "qwen3-moe", "granite-4", "gemma-4"):
        yield ", pp 2", _case(pp=2, **slots)
        yield ", fully sharded", _case(tp=2, **slots, fully_sharded_loras=True)
    if kind in ("llama-gqa", "qwen3-moe"):
        yield ", some modules", _case(**slots, lora_target_modules=["o_proj", "gate_up_proj", "down_proj"])
        yield ", other type and rank", _case(**{**slots, "max_lora_rank": 1}, lora_dtype="float16")
