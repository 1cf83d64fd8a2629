"""Start-ups of published logs, worded as the format strings of their releases word them.

The figures are those that issues and pull requests of vllm-project/vllm, and logs kept in public repositories, report
(named with each case); prefixes are those that the releases' loggers write.
"""

from __future__ import annotations

import io

import pytest

from vramledger.engines.vllm.log import measured
from vramledger.engines.vllm.log_settings import printed_settings
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import Figure, Measurement
from vramledger.telemetry.log_reading import read_log
from vramledger.units import GIB


def read(text: str) -> Measurement:
    return measured(read_log(io.BytesIO(text.encode()), engine="vllm"))


def named(found: Measurement, name: str) -> list[Figure]:
    return [figure for figure in found.figures if figure.name == name]


def holds(size: ByteRange, gib: float, digits: int) -> None:
    """Whether a printed figure of so many digits is read as what it may stand for."""
    expected = gib * GIB
    half = GIB / 10**digits / 2
    assert abs(size.expected - expected) <= 1
    assert abs(size.high - expected - half) <= 2 and abs(size.low - expected + half) <= 2


def test_0_4_prints_weights_and_blocks() -> None:
    """facebook/opt-125m, A100 80 GB (vllm issue 4083)."""
    found = read(
        "INFO 04-14 12:00:00 llm_engine.py:75] Initializing an LLM engine (v0.4.0.post1) with config: "
        "model='facebook/opt-125m', tokenizer='facebook/opt-125m', tokenizer_mode=auto, revision=None, dtype=torch.float16, "
        "max_seq_len=2048, tensor_parallel_size=1, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, seed=0)\n"
        "INFO 04-14 12:00:04 model_runner.py:104] Loading model weights took 0.2389 GB\n"
        "INFO 04-14 12:00:05 gpu_executor.py:94] # GPU blocks: 127977, # CPU blocks: 7281\n"
        "INFO 04-14 12:00:09 model_runner.py:867] Graph capturing finished in 6 secs.\n"
    )
    assert (found.engine_version, found.model, found.tp) == ("0.4.0.post1", "facebook/opt-125m", 1)
    holds(named(found, "weights after load")[0].bytes, 0.2389, 4)
    (pool,) = found.pools
    assert pool.num_blocks is not None and pool.num_blocks.expected == 127977
    assert pool.tokens is None and pool.context_len == 2048
    assert not named(found, "CUDA graphs as captured")


def test_v0_with_a_draft_loads_twice() -> None:
    """HuggingFaceH4/zephyr-7b-beta with a draft model, H100 (vllm issue 6768): target and draft print a load each."""
    found = read(
        "INFO 07-25 12:00:00 llm_engine.py:176] Initializing an LLM engine (v0.5.2) with config: "
        "model='HuggingFaceH4/zephyr-7b-beta', speculative_config=SpeculativeConfig(draft_model='x/y', num_spec_tokens=5), "
        "max_seq_len=4096, tensor_parallel_size=1)\n"
        "INFO 07-25 12:00:04 model_runner.py:568] Loading model weights took 13.4966 GB\n"
        "INFO 07-25 12:00:05 model_runner.py:568] Loading model weights took 4.4062 GB\n"
        "INFO 07-25 12:00:05 gpu_executor.py:94] # GPU blocks: 22839, # CPU blocks: 2048\n"
    )
    (weights,) = named(found, "weights after load")
    assert abs(weights.bytes.expected - 17.9028 * GIB) <= 2
    assert "target and draft" in weights.evidence.formula


def test_v0_prints_its_whole_budget() -> None:
    """Qwen2.5-7B-Instruct, A10G, 0.8.1 under V0 (vllm issue 15360); the message spans three lines."""
    found = read(
        "INFO 03-23 12:00:00 [api_server.py:977] vLLM API server version 0.8.1\n"
        "INFO 03-23 12:00:00 [api_server.py:978] args: Namespace(host=None, port=8000, model='Qwen/Qwen2.5-7B-Instruct', "
        "block_size=None, max_model_len=6600, api_key='sk-secret', lora_modules=None, gpu_memory_utilization=0.9)\n"
        "INFO 03-23 12:00:01 [llm_engine.py:241] Initializing a V0 LLM engine (v0.8.1) with config: "
        "model='Qwen/Qwen2.5-7B-Instruct', speculative_config=None, max_seq_len=6600, tensor_parallel_size=1, "
        "pipeline_parallel_size=1, use_cached_outputs=True, \n"
        "INFO 03-23 12:00:08 [model_runner.py:1146] Model loading took 14.2487 GB and 5.4 seconds\n"
        "INFO 03-23 12:00:12 [worker.py:267] Memory profiling takes 3.21 seconds\n"
        "INFO 03-23 12:00:12 [worker.py:267] the current vLLM instance can use total_gpu_memory (21.99GiB) x "
        "gpu_memory_utilization (0.90) = 19.79GiB\n"
        "INFO 03-23 12:00:12 [worker.py:267] model weights take 14.25GiB; non_torch_memory takes 0.06GiB; PyTorch activation "
        "peak memory takes 1.43GiB; the rest of the memory reserved for KV Cache is 4.05GiB.\n"
        "INFO 03-23 12:00:12 [executor_base.py:111] # cuda blocks: 4741, # CPU blocks: 4681\n"
        "INFO 03-23 12:00:12 [executor_base.py:116] Maximum concurrency for 6600 tokens per request: 11.49x\n"
        "INFO 03-23 12:00:40 [model_runner.py:1570] Graph capturing finished in 22 secs, took 0.76 GiB\n"
        "INFO:     Application startup complete.\n"
    )
    assert dict(found.settings)["gpu_memory_utilization"] == 0.9 and dict(found.settings)["core"] == "V0"
    assert "api_key" not in dict(found.settings)
    holds(named(found, "weights after load")[0].bytes, 14.2487, 4)
    holds(named(found, "peak of the profile run")[0].bytes, 1.43, 2)
    holds(named(found, "growth outside torch")[0].bytes, 0.06, 2)
    holds(named(found, "CUDA graphs as captured")[0].bytes, 0.76, 2)
    (pool,) = found.pools
    assert pool.num_blocks is not None and pool.num_blocks.expected == 4741
    assert pool.bytes is not None and pool.bytes.low <= 4741 * 16 * 57344 <= pool.bytes.high
    assert pool.max_concurrency is not None and pool.max_concurrency.expected == 11.49
    assert found.device_total_bytes is not None
    holds(found.device_total_bytes, 21.99, 2)


def test_each_rank_prints_its_pool_up_to_0_11() -> None:
    """Qwen3-32B, tp 8 on H100, 0.10.0 (a log kept in a public repository): the smallest rank is the pool."""
    ranks = [(55.62, 3644816, 111.23), (55.71, 3650960, 111.42), (56.08, 3675536, 112.17)]
    lines = [
        (
            "(EngineCore_0 pid=9) INFO 08-01 12:00:00 [core.py:71] Initializing a V1 LLM engine (v0.10.0) with config: "
            "model='Qwen/Qwen3-32B', max_seq_len=32768, tensor_parallel_size=8, pipeline_parallel_size=1"
        )
    ]
    for rank, (gib, tokens, times) in enumerate(ranks):
        prefix = f"(VllmWorker rank={rank} pid={100 + rank}) INFO 08-01 12:00:0{rank}"
        lines += [
            f"{prefix} [gpu_model_runner.py:1801] Model loading took 7.6871 GiB and 12.3 seconds",
            f"{prefix} [gpu_worker.py:255] Available KV cache memory: {gib:.2f} GiB",
            f"{prefix} [gpu_model_runner.py:2537] Graph capturing finished in 25 secs, took 1.17 GiB",
        ]
        lines += [
            f"(EngineCore_0 pid=9) INFO 08-01 12:00:0{rank} [kv_cache_utils.py:833] GPU KV cache size: {tokens:,} tokens",
            (
                f"(EngineCore_0 pid=9) INFO 08-01 12:00:0{rank} [kv_cache_utils.py:837] Maximum concurrency for 32,768 tokens per "
                f"request: {times:.2f}x"
            ),
        ]
    found = read("\n".join(lines) + "\n")
    assert sorted(figure.ranks for figure in named(found, "weights after load")) == [(0,), (1,), (2,)]
    (pool,) = found.pools
    assert pool.tokens is not None and pool.tokens.expected == 3644816
    assert pool.max_concurrency is not None and pool.max_concurrency.expected == 111.23
    assert pool.bytes is not None and pool.bytes.low <= 227801 * 16 * 16384 <= pool.bytes.high


def test_0_10_2_sums_up_after_capture() -> None:
    """Qwen3-30B-A3B-Instruct-2507, H100, 0.10.2 (a log kept in a public repository)."""
    found = read(
        "(EngineCore_DP0 pid=7) INFO 09-20 12:00:00 [core.py:76] Initializing a V1 LLM engine (v0.10.2) with config: "
        "model='Qwen/Qwen3-30B-A3B-Instruct-2507', max_seq_len=6144, tensor_parallel_size=1, pipeline_parallel_size=1, "
        'compilation_config={"level":3,"cudagraph_mode":[2,1],"cudagraph_capture_sizes":[512,504],"splitting_ops":["a","b"]}\n'
        "(EngineCore_DP0 pid=7) INFO 09-20 12:00:50 [gpu_model_runner.py:2392] Model loading took 56.9342 GiB and 40.1 seconds\n"
        "(EngineCore_DP0 pid=7) INFO 09-20 12:01:00 [gpu_worker.py:298] Available KV cache memory: 8.68 GiB\n"
        "(EngineCore_DP0 pid=7) INFO 09-20 12:01:00 [kv_cache_utils.py:864] GPU KV cache size: 94,784 tokens\n"
        "(EngineCore_DP0 pid=7) INFO 09-20 12:01:00 [kv_cache_utils.py:868] Maximum concurrency for 6,144 tokens per request: "
        "15.43x\n"
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##########| 67/67 [00:05<00:00, 12.1it/s]\n"
        "(EngineCore_DP0 pid=7) INFO 09-20 12:01:20 [gpu_model_runner.py:3118] Graph capturing finished in 20 secs, took 0.69 GiB\n"
        "(EngineCore_DP0 pid=7) INFO 09-20 12:01:20 [gpu_worker.py:391] Free memory on device (78.57/79.18 GiB) on startup. "
        "Desired GPU memory utilization is (0.9, 71.26 GiB). Actual usage is 56.93 GiB for weight, 5.58 GiB for peak activation, "
        "0.07 GiB for non-torch memory, and 0.69 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with "
        "`--kv-cache-memory=8422426624` to fit into requested memory, or `--kv-cache-memory=16271966208` to fully utilize gpu "
        "memory. Current kv cache memory in use is 9320778752 bytes.\n"
    )
    holds(named(found, "weights after load")[0].bytes, 56.9342, 4)
    holds(named(found, "peak of the profile run")[0].bytes, 5.58, 2)
    holds(named(found, "growth outside torch")[0].bytes, 0.07, 2)
    assert dict(found.settings)["cudagraph_capture_sizes"] == "[512,504]"
    (before,) = found.allocator
    assert (before.point, before.phase, before.ranks) == ("before load", Phase.LOAD, (0,))
    assert before.device_free_bytes is not None
    holds(before.device_free_bytes, 78.57, 2)
    (pool,) = found.pools
    assert pool.bytes is not None and pool.bytes.low <= 5924 * 16 * 98304 <= pool.bytes.high


def test_0_26_states_what_was_consumed() -> None:
    """Qwen3-Coder-30B-A3B-Instruct, A100 80 GB, a build after 0.26 (a log kept in a public repository)."""
    found = read(
        "(EngineCore pid=7) INFO 07-31 12:00:00 [core.py:114] Initializing a V1 LLM engine "
        "(v0.26.1rc1.dev156+g0eec856cc.d20260731) with config: model='Qwen/Qwen3-Coder-30B-A3B-Instruct', max_seq_len=131072, "
        "tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, enforce_eager=False\n"
        "(EngineCore pid=7) INFO 07-31 12:01:00 [model_runner.py:331] Model loading took 56.93 GiB and 30.512345 seconds\n"
        "(EngineCore pid=7) INFO 07-31 12:01:20 [gpu_model_runner.py:6500] Profiling CUDA graph memory: PIECEWISE=11 (largest=64), "
        "FULL=7 (largest=32)\n"
        "(EngineCore pid=7) DEBUG 07-31 12:01:21 [gpu_model_runner.py:6550] Estimated PIECEWISE CUDA graph memory: 88.00 MiB "
        "first-capture + (11-1) × 4.00 MiB per-graph\n"
        "(EngineCore pid=7) INFO 07-31 12:01:22 [gpu_model_runner.py:6590] Estimated CUDA graph memory: 0.15 GiB total\n"
        "(EngineCore pid=7) INFO 07-31 12:01:22 [gpu_worker.py:560] Available KV cache memory: 13.84 GiB\n"
        "(EngineCore pid=7) INFO 07-31 12:01:22 [kv_cache_utils.py:2000] GPU KV cache size: 151,216 tokens\n"
        "(EngineCore pid=7) INFO 07-31 12:01:22 [kv_cache_utils.py:2005] Maximum concurrency for 131,072 tokens per request: 1.15x\n"
        "(EngineCore pid=7) INFO 07-31 12:01:40 [gpu_model_runner.py:6900] Graph capturing finished in 6 secs, took 0.11 GiB\n"
        "(EngineCore pid=7) INFO 07-31 12:01:40 [gpu_worker.py:720] CUDA graph pool memory: 0.11 GiB (actual), 0.15 GiB "
        "(estimated), difference: 0.04 GiB (36.4%).\n"
        "(EngineCore pid=7) INFO 07-31 12:01:40 [gpu_worker.py:789] Free memory on device (78.84/79.25 GiB) on startup. Desired GPU "
        "memory utilization is (0.9, 71.33 GiB). Actual usage is 57.26 GiB for consumed memory (weights + non-torch), 0.38 GiB for "
        "peak activation, and 0.11 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with "
        "`--kv-cache-memory=14400000000` (13.41 GiB) to fit into requested memory, or `--kv-cache-memory=22500000000` (20.95 GiB) "
        "to fully utilize gpu memory. Current kv cache memory in use is 13.84 GiB.\n"
    )
    (consumed,) = named(found, "consumed for good: weights, buffers, kernels")
    holds(consumed.bytes, 57.26, 2)
    (peak,) = named(found, "peak of the profile run")
    assert peak.bytes.low <= 0.23 * GIB <= peak.bytes.high
    assert Owner.GRAPH_POOL not in peak.owners
    assert [(shape.shape, shape.increment_bytes.expected) for shape in found.graphs] == [
        ("PIECEWISE, the largest", 88 * 2**20),
        ("PIECEWISE, each further", 4 * 2**20),
    ]
    (pool,) = found.pools
    assert pool.bytes is not None and pool.bytes.low <= 151216 // 16 * 16 * 98304 <= pool.bytes.high


def test_a_pool_that_is_asked_for_is_what_it_is_cut_from() -> None:
    found = read(
        "(APIServer pid=1) INFO 07-31 12:00:00 [utils.py:233] non-default args: {'model': 'a/b', 'kv_cache_memory_bytes': "
        "11423138508}\n"
        "(EngineCore pid=7) INFO 07-31 12:01:22 [gpu_worker.py:340] Initial free memory 78.5 GiB, reserved 10.64 GiB memory for KV "
        "Cache as specified by kv_cache_memory_bytes config and skipped memory profiling. This does not respect the "
        "gpu_memory_utilization config. Only use kv_cache_memory_bytes config when you want manual control of KV cache memory "
        "size. If OOM'ed, check the difference\n"
        "(EngineCore pid=7) INFO 07-31 12:01:22 [kv_cache_utils.py:1000] GPU KV cache size: 237,344 tokens\n"
    )
    (pool,) = found.pools
    assert pool.bytes is not None
    assert pool.bytes.low <= 14834 * 8192 * 94 <= pool.bytes.high == 11423138508


def test_ranks_that_are_not_told_are_one_figure_that_spans_them() -> None:
    """gemma-3-27b-it, tp 4 under V0 (vllm issue 16378): workers print no rank."""
    lines = [
        "INFO 03-18 12:00:00 [llm_engine.py:241] Initializing a V0 LLM engine (v0.8.0) with config: model='g', tensor_parallel_size=4"
    ]
    for pid, gib in ((11, 0.40), (12, 0.48), (13, 0.52)):
        lines.append(
            f"(VllmWorkerProcess pid={pid}) INFO 03-18 12:00:01 [worker.py:267] model weights take 13.17GiB; non_torch_memory takes "
            f"{gib:.2f}GiB; PyTorch activation peak memory takes 3.73GiB; the rest of the memory reserved for KV Cache is 18.03GiB."
        )
    (growth,) = named(read("\n".join(lines) + "\n"), "growth outside torch")
    assert growth.ranks == ()
    assert growth.bytes.low <= 0.40 * GIB and growth.bytes.high >= 0.52 * GIB
    assert growth.evidence.formula == "of 3 processes whose ranks are not told"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model='a/b', x=None, n=3, u=0.92, eager=True, d=torch.bfloat16", {"model": "a/b", "n": 3, "u": 0.92, "eager": True, "d": "torch.bfloat16"}),
        ("{'model': 'a', 'hf_overrides': {'x': [1, 2]}, 'names': ['p, q']}", {"model": "a", "hf_overrides": "{'x': [1, 2]}", "names": "['p, q']"}),
        ("Namespace(model='it\\'s, a=b', port=1)", {"model": "it\\'s, a=b", "port": 1}),
        ("mode=<CUDAGraphMode.PIECEWISE: 1>, last='open", {"mode": "PIECEWISE", "last": "'open"}),
        ("{", {}),
        ("((((", {}),
    ],
)  # fmt: skip
def test_printed_settings_are_scanned_and_never_evaluated(text: str, expected: dict[str, object]) -> None:
    assert printed_settings(text) == expected


def test_settings_of_any_depth_and_length_end() -> None:
    assert printed_settings("x=" + "[" * 100_000) == {}
    assert len(printed_settings(", ".join(f"n{i}={i}" for i in range(50_000)))) <= 1_000
    assert printed_settings("x=" + "9" * 5_000)["x"] == "9" * 500
