"""TensorRT-LLM's wordings of both back ends, and what a start-up's lines measure.

Lines are worded as the sources of the release named beside them word them; figures are those of the public start-ups that the
ground truth lists (gpt-oss-120b on a GB10 with 1.1.0rc3, Llama-2-7B on an H100 with 0.12).
"""

from __future__ import annotations

import pytest

from log_support import measure, values
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.units import GIB, MIB


def two(size: float, unit: int = GIB) -> ByteRange:
    """A print with two decimals."""
    expected, half = round(size * 100) * unit // 100, unit // 200
    return ByteRange(expected - half, expected, expected + half)


POOL = "[TensorRT-LLM][INFO] [MemUsageChange] Allocated {} GiB for max tokens in paged KV cache ({})."
LIMITS = "max_seq_len={}, max_num_requests=64, max_num_tokens=8192, max_batch_size=64"
PYTORCH = (
    "[TensorRT-LLM] TensorRT-LLM version: 1.1.0rc3",
    "[12/20/2025-04:20:19] [TRT-LLM] [I] PyTorchConfig(use_cuda_graph=True, cuda_graph_max_batch_size=128, disable_overlap_scheduler=True, attn_backend='TRTLLM', kv_cache_dtype='auto', load_format=<LoadFormat.AUTO: 0>)",
    "[12/20/2025-04:20:21] [TRT-LLM] [I] Use 63.32 GB for model weights.",
    "[TensorRT-LLM][INFO] Number of tokens per block: 32.",
    POOL.format("0.56", 8224),
    f"[12/20/2025-04:21:10] [TRT-LLM] [I] {LIMITS.format(8224)}",
    "[TensorRT-LLM][WARNING] Attention workspace size is not enough, increase the size from 0 bytes to 100738816 bytes",
    "[12/20/2025-04:21:50] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 63.52 GiB",
    "[12/20/2025-04:21:50] [TRT-LLM] [I] Memory used after loading model weights (outside torch) in memory usage profiling: 49.78 GiB",
    "[12/20/2025-04:21:51] [TRT-LLM] [I] Memory dynamically allocated during inference (inside torch) in memory usage profiling: 0.85 GiB",
    "[12/20/2025-04:21:51] [TRT-LLM] [I] Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: 49.28 GiB",
    "[12/20/2025-04:21:51] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 113.65 GiB, available KV cache memory when calculating max tokens: 5.95 GiB, fraction is set 0.8999999761581421, kv size is 73728. device total memory 119.70 GiB, , tmp kv_mem 0.56 GiB",
    "[12/20/2025-04:21:51] [TRT-LLM] [I] Estimated max memory in KV cache : 5.95 GiB",
    "[12/20/2025-04:21:51] [TRT-LLM] [W] Adjusted max_seq_len to 86720",
    "[TensorRT-LLM][INFO] Number of tokens per block: 32.",
    POOL.format("5.95", 86720),
    f"[12/20/2025-04:21:52] [TRT-LLM] [I] {LIMITS.format(86720)}",
    "INFO:     Application startup complete.",
)
ENGINE = (
    "[TensorRT-LLM][INFO] Engine version 0.12.0.dev2024073000 found in the config file, assuming engine(s) built by new builder API.",
    "[TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 4096",
    "[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 8192",
    "[TensorRT-LLM][INFO] Capacity Scheduler Policy: GUARANTEED_NO_EVICT",
    "[TensorRT-LLM][INFO] Loaded engine size: 6214 MiB",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 928.77 MiB for execution context memory.",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.14 GB GPU memory for runtime buffers.",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 4.35 GB GPU memory for decoder.",
    "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, available: 63.62 GiB",
    "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 4607",
    "[TensorRT-LLM][INFO] Number of blocks in KV cache secondary pool: 0, onboard blocks to primary memory before reuse: true",
    "[TensorRT-LLM][INFO] Number of tokens per block: 64.",
    POOL.format("62.99", 294848),
    "[TensorRT-LLM][INFO] Executor instance created by worker",
)


def test_the_temporary_pool_of_the_estimate_is_not_the_pool() -> None:
    found = measure("tensorrt-llm", PYTORCH)
    (pool,) = found.pools
    assert pool.tokens is not None and pool.tokens.expected == 86720
    assert pool.num_blocks is not None and pool.num_blocks.expected == 2710
    assert (pool.block_size, pool.context_len, pool.bytes) == (32, 86720, two(5.95))
    figures = {figure.name: figure for figure in found.figures}
    assert figures["KV pools"].bytes == two(5.95)
    assert figures["parameters"].bytes == two(63.32)
    assert figures["held by torch after the load"].owners == (Owner.WEIGHTS,)
    assert figures["activation peak"].bytes == two(0.85)
    assert figures["attention workspace"].bytes == ByteRange.exact(100738816)
    assert figures["outside torch"].bytes == two(49.28) - two(0.56)
    assert found.engine_version == "1.1.0rc3"
    assert found.device_total_bytes == two(119.7)


def test_memory_inside_and_outside_of_torch_is_kept_apart() -> None:
    states = {state.point: state for state in measure("tensorrt-llm", PYTORCH).allocator}
    loaded = states["after the load"]
    assert (loaded.allocated_bytes, loaded.outside_bytes) == (two(63.52), two(49.78))
    assert loaded.device_free_bytes is None and loaded.reserved_bytes is None
    peak = states["peak of the estimating run"]
    assert peak.phase is Phase.WARMUP
    assert peak.device_free_bytes == two(119.7) - two(113.65)


def test_settings_are_the_arguments_and_the_limits_in_force() -> None:
    settings = dict(measure("tensorrt-llm", PYTORCH).settings)
    assert settings["max_seq_len"] == 86720
    assert settings["max_batch_size"] == 64
    assert settings["tokens_per_block"] == 32
    assert settings["attn_backend"] == "TRTLLM"
    assert settings["disable_overlap_scheduler"] is True
    assert settings["free_gpu_memory_fraction"] == pytest.approx(0.9)


def test_an_engine_states_each_of_its_parts() -> None:
    found = measure("tensorrt-llm", ENGINE)
    figures = {figure.name: figure for figure in found.figures}
    assert figures["engine"].bytes == ByteRange(6214 * MIB - MIB // 2, 6214 * MIB, 6214 * MIB + MIB // 2)
    assert figures["execution context"].bytes == two(928.77, MIB)
    assert figures["runtime buffers"].bytes == two(1.14)
    assert figures["decoder buffers"].entries == ("decoder buffers",)
    (pool,) = found.pools
    assert pool.num_blocks is not None and pool.num_blocks.expected == 4607
    (state,) = found.allocator
    assert (state.point, state.device_free_bytes, state.device_total_bytes) == (
        "before the pool",
        two(63.62),
        two(79.1),
    )
    assert found.engine_version == "0.12.0.dev2024073000"
    settings = dict(found.settings)
    assert settings["capacity_scheduler_policy"] == "GUARANTEED_NO_EVICT"
    assert (settings["maxBatchSize"], settings["maxNumTokens"]) == (4096, 8192)


def test_windows_are_pools_of_their_own() -> None:
    lines = (
        "Blocks per window size:",
        "[windowSize=128] {.primaryBlocks=4551, .secondayBlocks=0}",
        "[windowSize=131072] {.primaryBlocks=4551, .secondayBlocks=10}",
        "Number of tokens per block: 32.",
        "[MemUsageChange] Allocated 10.00 GiB for max tokens in paged KV cache (291264).",
    )
    found = {pool.kind: pool.tokens.expected for pool in measure("tensorrt-llm", lines).pools if pool.tokens}
    assert found == {"": 291264, "window 128": 145632, "window 131072": 145632}


def test_a_creation_that_failed_tells_free_memory_after_each_part() -> None:
    lines = (
        "RuntimeError: Executor creation failed due to insufficient GPU memory.",
        "The following component could not be created: KV cache",
        "Total GPU memory (GiB): 140.06",
        "Free GPU memory before component creation attempt (GiB): 108.86",
        "Previously created components and free GPU memory before/after creation (GiB):",
        "Model: 139.55 / 110.70",
        "Initial KV cache (temporary for KV cache size estimation): 110.70 / 110.33",
    )
    found = measure("tensorrt-llm", lines)
    assert [(state.point, state.device_free_bytes) for state in found.allocator] == [
        ("before the part that failed", two(108.86)),
        ("after Model", two(110.7)),
        ("after Initial KV cache (temporary for KV cache size estimation)", two(110.33)),
    ]
    assert found.device_total_bytes == two(140.06)


def test_of_two_start_ups_the_last_counts() -> None:
    again = [line.replace("86720", "80000").replace("5.95", "5.49") for line in PYTORCH]
    found = measure("tensorrt-llm", [*PYTORCH, *again])
    assert found.pools[0].tokens is not None and found.pools[0].tokens.expected == 80000
    assert found.notes == ("the log holds 2 start-ups; this is the last",)


@pytest.mark.parametrize(
    ("release", "line", "expected"),
    [
        ("0.5", "Using 10718 tokens in paged KV cache.", {"kv_tokens": 10718}),
        ("0.16", "Peak memory during memory usage profiling (torch + non-torch): 20.00 GiB, available KV cache memory when calculating max tokens: 50.00 GiB", {"peak_bytes": two(20.0), "kv_cache_bytes": two(50.0)}),
        ("0.19", "Peak memory during memory usage profiling (torch + non-torch): 20.00 GiB, available KV cache memory when calculating max tokens: 50.00 GiB, fraction is set 0.9, kv size is 131072", {"token_bytes": 131072, "fraction_ratio": 0.9}),
        ("0.20", "Peak memory during memory usage profiling (torch + non-torch): 91.46 GiB, available KV cache memory when calculating max tokens: 41.11 GiB, fraction is set 0.85, kv size is 35136. device total memory 139.81 GiB", {"token_bytes": 35136, "total_bytes": two(139.81)}),
        ("1.3", "Peak memory during memory usage profiling (torch + non-torch): 91.46 GiB, available KV cache memory when calculating max tokens: 41.11 GiB, fraction is set 0.85, kv size per token is 35136. device total memory 139.81 GiB, temporary kv cache memory during profiling 0.56 GiB", {"token_bytes": 35136, "temporary_kv_bytes": two(0.56)}),
        ("0.21", "Estimated max tokens in KV cache : 12345", {"budget_tokens": 12345}),
        ("1.2", "max_tokens 1000 is provided. Allowed quota from max_tokens is 0.1285051045618557GiB. New quota is 0.12GiB", {"asked_tokens": 1000, "kv_cache_bytes": two(0.12)}),
        ("1.2", "Max KV cache blocks per sequence: 65 [window size=2049], tokens per block=32, primary blocks=13189, secondary blocks=0, max sequence length=2049", {"num_blocks": 13189, "block_size": 32, "context_len": 2049}),
        ("1.0", "Both free_gpu_memory_fraction and max_tokens are set (to 0.8999999761581421 and 86711, respectively). The smaller value will be used.", {"limit_tokens": 86711, "fraction_ratio": 0.8999999761581421}),
        ("1.2", "iter = 5, global_rank = 0, rank = 0, num_scheduled_requests = 8, kv_cache_util = 0.1, currank_total_requests = 0/1, host_step_time = 7.4ms, prev_device_step_time = 7ms, timestamp = 08-23-2026 01:02:03, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 512, 'num_generation_tokens': 7}", {"scheduled_requests": 8, "kv_usage_ratio": 0.1, "prefill_tokens": 512, "decode_tokens": 7}),
        ("0.8", '{"Active Request Count":2,"Context Requests":1,"Free KV cache blocks":500,"Generation Requests":0,"Iteration Counter":90,"Max KV cache blocks":501,"Max Request Count":64,"MicroBatch ID":0,"Runtime CPU Memory Usage":28784,"Runtime GPU Memory Usage":540173600,"Runtime Pinned Memory Usage":0,"Scheduled Requests":1,"Tokens per KV cache block":128,"Total Context Tokens":6,"Used KV cache blocks":1}', {"running_requests": 2, "kv_free_blocks": 500, "kv_used_blocks": 1, "runtime_bytes": 540173600}),
    ],
)  # fmt: skip
def test_wordings(release: str, line: str, expected: dict[str, object]) -> None:
    found = values("tensorrt-llm", line)
    assert {name: found.get(name) for name in expected} == expected, release
