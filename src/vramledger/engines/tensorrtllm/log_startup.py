"""How TensorRT-LLM words what it prints while it starts: the TRT back end (C++, since 0.5) and the PyTorch back end.

Sizes are binary whatever the unit is called: the C++ side's "GB" to 0.12 is 2^30.

Source: tensorrt_llm/_torch/pyexecutor/_util.py, model_loader.py, resource_manager.py, kv_cache_manager_v2.py,
py_executor_creator.py; cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp, trtGptModelInflightBatching.cpp,
runtime/tllmRuntime.cpp; start-up logs of 0.5 to 1.2.
"""

from __future__ import annotations

from vramledger.engines.log_pattern import LinePattern, line_pattern
from vramledger.observation import Event

_UTIL = "tensorrt_llm/_torch/pyexecutor/_util.py"
_KV = "cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp"
_LONG = r"[0-9]{1,15}(?:\.[0-9]{1,20})?"
_SIZE = r"(?:(?P<size_gib>NUM) Gi?B|(?P<size_mib>NUM) Mi?B|(?P<size_kib>NUM) Ki?B|(?P<size_bytes>NUM) B)"
_MODEL = "cpp/tensorrt_llm/batch_manager/trtGptModelInflightBatching.cpp"

STARTUP: tuple[LinePattern, ...] = (
    line_pattern(
        Event.VERSION, "LLM version: ", r"TensorRT[- ]LLM version: (?P<engine_version>[\w.+-]{1,60})",
        source="tensorrt_llm/__init__.py",
    ),
    line_pattern(
        Event.VERSION, "found in the config file", r"Engine version (?P<engine_version>[\w.+-]{1,60}) found in the config file",
        source="cpp/tensorrt_llm/runtime/gptJsonConfig.cpp", backend="tensorrt",
    ),
    line_pattern(
        Event.SETTINGS, "LLM Args:", r"(?s)LLM Args:(?P<arguments>.*)",
        source="tensorrt_llm/llmapi, 1.0 on", following=1,
    ),
    line_pattern(
        Event.SETTINGS, "PyTorchConfig(", r"(?s)PyTorchConfig\((?P<arguments>.*)",
        source="tensorrt_llm/_torch/pyexecutor, 0.18-1.1",
    ),
    line_pattern(
        Event.SETTINGS, "LLM engine args: ", r"(?s)LLM engine args: (?P<arguments>\{.*)",
        source="launchers around TensorRT-LLM",
    ),
    *(
        line_pattern(
            Event.SETTINGS, f"TRTGptModel {name}: ", rf"TRTGptModel {name}: (?P<{name}>[0-9]{{1,12}})",
            source=_MODEL,
        )
        for name in ("maxNumSequences", "maxBatchSize", "maxBeamWidth", "maxSequenceLen", "maxDraftLen", "maxNumTokens")
    ),
    line_pattern(
        Event.SETTINGS, "Capacity Scheduler Policy: ", r"Capacity Scheduler Policy: (?P<capacity_scheduler_policy>\w{1,40})",
        source=_MODEL,
    ),
    line_pattern(
        Event.KV_BUDGET, "Both free_gpu_memory_fraction and max_tokens are set",
        r"are set \(to (?P<fraction_ratio>[0-9.]{1,24}) and (?P<limit_tokens>NUM), respectively\)",
        source="tensorrt_llm/_torch/pyexecutor/resource_manager.py; kvCacheManager.cpp: the limit may be the estimate's",
    ),
    # Weights.
    line_pattern(
        Event.WEIGHTS, "Loaded engine size: ", r"Loaded engine size: (?P<engine_mib>NUM) MiB",
        source="TensorRT's own, by cpp/tensorrt_llm/runtime/tllmRuntime.cpp", backend="tensorrt",
    ),
    line_pattern(
        Event.WEIGHTS, "GB for model weights", r"Use (?P<weights_gib>NUM) GB for model weights",
        source="tensorrt_llm/_torch/pyexecutor/model_loader.py (model_engine.py to 1.0): parameters of the rank",
    ),
    # TRT back end.
    line_pattern(
        Event.BUFFER, "for execution context memory", rf"\[MemUsageChange\] Allocated {_SIZE} for execution context memory",
        source="cpp/tensorrt_llm/runtime/tllmRuntime.cpp", buffer="execution context",
    ),
    line_pattern(
        Event.BUFFER, "for runtime buffers", rf"\[MemUsageChange\] Allocated {_SIZE} GPU memory for runtime buffers",
        source=_MODEL, buffer="runtime buffers",
    ),
    line_pattern(
        Event.BUFFER, "for decoder", rf"\[MemUsageChange\] Allocated {_SIZE} GPU memory for decoder",
        source=_MODEL, buffer="decoder buffers",
    ),
    line_pattern(
        Event.MEMORY, "when calculating max tokens in paged kv cache",
        r"Memory usage when calculating max tokens in paged kv cache: total: (?P<total_gib>NUM) GiB, available: (?P<free_gib>NUM) GiB",
        source=_KV, point="before the pool",
    ),
    # PyTorch back end: the estimating run.
    line_pattern(
        Event.PROFILE, "weights (inside torch) in memory usage profiling",
        r"after loading (?:model )?weights \(inside torch\) in memory usage profiling: (?P<loaded_gib>NUM) GiB",
        source=f"{_UTIL}, 0.17 on",
    ),
    line_pattern(
        Event.PROFILE, "weights (outside torch) in memory usage profiling",
        r"after loading (?:model )?weights \(outside torch\) in memory usage profiling: (?P<outside_gib>NUM) GiB",
        source=f"{_UTIL}, 1.0 on",
    ),
    line_pattern(
        Event.PROFILE, "Memory dynamically allocated during inference",
        r"Memory dynamically allocated during inference \(inside torch\) in memory usage profiling: (?P<activation_peak_gib>NUM) GiB",
        source=f"{_UTIL}, 0.17 on",
    ),
    line_pattern(
        Event.PROFILE, "Memory used outside torch",
        r"Memory used outside torch (?:\(e\.g\., NCCL and CUDA graphs\) )?in memory usage profiling: (?P<non_torch_gib>NUM) GiB",
        source=f"{_UTIL}, 0.16 on",
    ),
    line_pattern(
        Event.PROFILE, "Peak memory during memory usage profiling",
        r"Peak memory during memory usage profiling \(torch \+ non-torch\): (?P<peak_gib>NUM) GiB, available KV cache memory when "
        r"calculating max tokens: (?P<kv_cache_gib>NUM) GiB(?:, fraction is set (?P<fraction_ratio>[0-9.]{1,24}), kv size "
        r"(?:per token )?is (?P<token_bytes>[0-9]{1,15})(?:\.[0-9]{1,3}(?=\. ))?(?:\. device total memory (?P<total_gib>NUM) GiB)?"
        r"(?:, ,? ?(?:tmp kv_mem|temporary kv cache memory during profiling) (?P<temporary_kv_gib>NUM) GiB)?)?",
        source=f"{_UTIL}, 0.16 on; fraction and size since 0.19, total since 0.20, reworded in 1.3",
    ),
    line_pattern(
        Event.KV_BUDGET, "Estimated max memory in KV cache", r"Estimated max memory in KV cache : (?P<kv_cache_gib>NUM) GiB",
        source=f"{_UTIL}, 1.0 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "Estimated max tokens in KV cache", r"Estimated max tokens in KV cache : (?P<budget_tokens>NUM)",
        source=f"{_UTIL}, to 0.21",
    ),
    line_pattern(
        Event.KV_BUDGET, "KV cache manager v2 device quota set to", rf"KV cache manager v2 device quota set to (?P<quota_gib>{_LONG}) ?GiB",
        source="tensorrt_llm/_torch/pyexecutor/kv_cache_manager_v2.py, 1.2 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "Allowed quota from max_tokens is",
        rf"max_tokens (?P<asked_tokens>NUM) is provided\. Allowed quota from max_tokens is (?P<asked_gib>{_LONG}) ?GiB\. New quota is (?P<kv_cache_gib>{_LONG}) ?GiB",
        source="tensorrt_llm/_torch/pyexecutor/kv_cache_manager_v2.py, 1.2 on",
    ),
    # Pools, both back ends.
    line_pattern(
        Event.KV_BUDGET, "KV cache primary pool: ", r"Number of blocks in KV cache primary pool: (?P<num_blocks>NUM)",
        source=f"{_KV}, to 0.20",
    ),
    line_pattern(
        Event.KV_BUDGET, "KV cache secondary pool: ", r"Number of blocks in KV cache secondary pool: (?P<host_blocks>NUM)",
        source=f"{_KV}, to 0.20",
    ),
    line_pattern(
        Event.KV_BUDGET, "primaryBlocks=", r"\[windowSize=(?P<window_size>NUM)\] \{\.primaryBlocks=(?P<num_blocks>NUM), \.secondar?yBlocks=(?P<host_blocks>NUM)",
        source=f"{_KV}, 1.0 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "Max KV cache blocks per sequence: ",
        r"Max KV cache blocks per sequence: NUM \[window size=(?P<window_size>NUM)\], tokens per block=(?P<block_size>NUM), primary blocks=(?P<num_blocks>NUM)"
        r"(?:, secondary blocks=(?P<host_blocks>NUM))?, max sequence length=(?P<context_len>NUM)",
        source=f"{_KV}, 1.1 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "Number of tokens per block: ", r"Number of tokens per block: (?P<block_size>NUM)\.",
        source=_KV,
    ),
    line_pattern(
        Event.KV_POOL, "for max tokens in paged KV cache",
        r"\[MemUsageChange\] Allocated (?P<kv_cache_gib>NUM) Gi?B for max tokens in paged KV cache \((?P<kv_tokens>NUM)\)",
        source=f"{_KV}, 0.8 on",
    ),
    line_pattern(
        Event.KV_POOL, "tokens in paged KV cache", r"Using (?P<kv_tokens>NUM) (?:total )?tokens in paged KV cache",
        source=f"{_KV}, to 0.7",
    ),
    line_pattern(
        Event.KV_BUDGET, "is reduced to ", r"(?:max_seq_len|maxSequenceLen|maxInputLen) is reduced to (?P<reduced_len>NUM)",
        source=_MODEL,
    ),
    line_pattern(
        Event.KV_BUDGET, "fit in kvCache. They are reduced to ", r"fit in kvCache\. They are reduced to (?P<reduced_len>NUM)",
        source=_MODEL,
    ),
    line_pattern(
        Event.KV_BUDGET, "exceeds upper bound ", r"Attention window size (?P<asked_len>NUM) exceeds upper bound (?P<reduced_len>NUM) for available blocks",
        source="tensorrt_llm/_torch/pyexecutor/resource_manager.py, 1.0 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "Adjusted max_seq_len to ", r"Adjusted max_seq_len to (?P<reduced_len>NUM)",
        source="tensorrt_llm/_torch/pyexecutor/resource_manager.py, 1.0 on",
    ),
    line_pattern(
        Event.SETTINGS, "max_num_requests=", r"max_seq_len=(?P<max_seq_len>[0-9]{1,12}), max_num_requests=(?P<max_num_requests>[0-9]{1,12}), "
        r"max_num_tokens=(?P<max_num_tokens>[0-9]{1,12})(?:, max_batch_size=(?P<max_batch_size>[0-9]{1,12}))?",
        source="tensorrt_llm/_torch/pyexecutor/py_executor_creator.py, 0.17 on", limits="in force",
    ),
    line_pattern(
        Event.BUFFER, "Attention workspace size is not enough",
        r"Attention workspace size is not enough, increase the size from NUM bytes to (?P<size_bytes>NUM) bytes",
        source="cpp/tensorrt_llm/thop/attentionOp.cpp", buffer="attention workspace",
    ),
    line_pattern(
        Event.WARMUP, "Creating CUDA graph instances for ", r"Creating CUDA graph instances for (?P<shapes_count>NUM) batch sizes",
        source="tensorrt_llm/_torch/pyexecutor/model_engine.py", step="graphs",
    ),
    line_pattern(
        Event.WARMUP, "CUDA graph warmup for batch size=", r"CUDA graph warmup for batch size=(?P<shape_size>NUM)",
        source="tensorrt_llm/_torch/pyexecutor/model_engine.py", step="graph",
    ),
    line_pattern(
        Event.MEMORY, "Setting PyTorch memory fraction to ", r"Setting PyTorch memory fraction to (?P<allowed_ratio>[0-9.]{1,24}) \((?P<allowed_gib>[0-9]{1,9}(?:\.[0-9]{1,20})?) GiB\)",
        source="tensorrt_llm/_torch/pyexecutor, 1.0 on", point="framework's limit",
    ),
    line_pattern(
        Event.READY, "Application startup complete.", r"Application startup complete\.",
        source="uvicorn under trtllm-serve",
    ),
    line_pattern(
        Event.READY, "Executor instance created by worker", r"Executor instance created by worker",
        source="cpp/tensorrt_llm/executor_worker",
    ),
    # A creation that failed tells what each part before it took.
    line_pattern(
        Event.MEMORY, "Total GPU memory (GiB): ", r"Total GPU memory \(GiB\): (?P<total_gib>NUM)",
        source="tensorrt_llm/_torch/pyexecutor/py_executor_creator.py, 1.0 on", point="creation failed",
    ),
    line_pattern(
        Event.MEMORY, "before component creation attempt", r"Free GPU memory before component creation attempt \(GiB\): (?P<free_gib>NUM)",
        source="tensorrt_llm/_torch/pyexecutor/py_executor_creator.py, 1.0 on", point="before the part that failed",
    ),
    line_pattern(
        Event.MEMORY, " / ", r"^\s{0,8}(?P<component>[A-Za-z][\w ()-]{2,80}): (?P<before_gib>[0-9]{1,5}\.[0-9]{2}) / (?P<free_gib>[0-9]{1,5}\.[0-9]{2})\s*$",
        source="tensorrt_llm/_torch/pyexecutor/py_executor_creator.py, 1.0 on", point="part created",
    ),
)  # fmt: skip

SERVING: tuple[LinePattern, ...] = (
    line_pattern(
        Event.STEP, "num_scheduled_requests", r"iter = (?P<step_id>NUM), .{0,400}?num_scheduled_requests ?[=:] (?P<scheduled_requests>NUM)"
        r"(?:, kv_cache_util = (?P<kv_usage_ratio>NUM))?(?:.{0,400}?'num_ctx_requests': (?P<prefill_requests>NUM), 'num_ctx_tokens': (?P<prefill_tokens>NUM), "
        r"'num_generation_tokens': (?P<decode_tokens>NUM))?",
        source="tensorrt_llm/_torch/pyexecutor/py_executor.py (print_iter_log), 0.17 on",
    ),
    line_pattern(
        Event.STEP, '"Free KV cache blocks"', r'"Active Request Count":(?P<running_requests>NUM),.{0,400}?"Free KV cache blocks":(?P<kv_free_blocks>NUM),.{0,400}?"Max KV cache blocks":(?P<kv_pool_blocks>NUM),'
        r'(?:.{0,600}?"Runtime GPU Memory Usage":(?P<runtime_bytes>NUM),)?.{0,600}?"Used KV cache blocks":(?P<kv_used_blocks>NUM)',
        source="tensorrtllm_backend's iteration log, 0.6 on",
    ),
)  # fmt: skip
