"""vLLM's log lines about memory: weights, profile, pool.

Wordings were read in the logger calls of 0.6.6 to 0.33.0; older ones are those of published logs. "GB" stands for
GiB and "MB" for MiB where the calls divide by 2^30 and 2^20. From 0.14 on (and in the summary line from 0.10.2) a
GiB is rounded to two digits and printed without trailing zeros.
"""

from __future__ import annotations

from functools import partial

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

_weights = partial(line_pattern, Event.WEIGHTS)
_profile = partial(line_pattern, Event.PROFILE)
_budget = partial(line_pattern, Event.KV_BUDGET)
_pool = partial(line_pattern, Event.KV_POOL)
_memory = partial(line_pattern, Event.MEMORY)

WEIGHTS = (
    _weights(
        "Model loading took ",
        r"Model loading took (?P<weights_gib>NUM) Gi?B(?: memory)?(?: and (?P<elapsed_s>NUM) seconds)?",
        source="v1/worker/gpu_model_runner.py, worker/model_runner.py (GB 0.7-0.8.0, memory from 0.11.1), v1/worker/gpu/"
        "model_runner.py (memory from 0.28)",
    ),
    _weights(
        "Loading model weights took ",
        r"Loading model weights took (?P<weights_gib>NUM) Gi?B",
        source="worker/model_runner.py, v1/worker/gpu_model_runner.py, to 0.7; worker/xpu_model_runner.py to 0.9",
    ),
    _memory(
        "Checkpoint size: ",
        r"Checkpoint size: (?P<checkpoint_gib>NUM) GiB\. Available RAM: (?P<host_free_gib>NUM) GiB",
        source="model_executor/model_loader/weight_utils.py, from 0.20",
        point="files found",
    ),
    _memory(
        "checkpoint total size (",
        r"checkpoint total size \((?P<checkpoint_gib>NUM) GiB\) exceeds NUM% of available RAM \((?P<host_free_gib>NUM) GiB",
        source="model_executor/model_loader/weight_utils.py, from 0.20",
        point="files found",
    ),
    _memory(
        "and the checkpoint size (",
        r"and the checkpoint size \((?P<checkpoint_gib>NUM) GiB\) exceeds NUM% of available RAM \((?P<host_free_gib>NUM) GiB",
        source="model_executor/model_loader/weight_utils.py, from 0.20",
        point="files found",
    ),
    _memory(
        "Peak GPU memory after loading weights: ",
        r"Peak GPU memory after loading weights: (?P<allocated_gib>NUM) GiB",
        source="model_executor/model_loader/base_loader.py, from 0.16, debug",
        point="peak while loading",
    ),
    _memory(
        "of checkpoint page cache in ",
        r"Released (?P<released_gib>NUM) GiB of checkpoint page cache",
        source="model_executor/model_loader/weight_utils.py, from 0.33",
        point="page cache released",
    ),
    _memory(
        "Weight cache ",
        r"Weight cache \S{1,60} daemon rank (?P<rank_id>NUM) loaded model \((?P<allocated_gib>NUM) GiB allocated, "
        r"(?P<reserved_gib>NUM) GiB reserved\)",
        source="model_executor/model_loader/weight_cache/daemon.py, from 0.33",
        point="weights held by a daemon",
    ),
    _memory(
        "is externally held and ",
        r"of the (?P<budget_gib>NUM) GiB utilization budget, (?P<external_gib>NUM) GiB is externally held and "
        r"(?P<own_budget_gib>NUM) GiB remains",
        source="v1/worker/utils.py, from 0.33",
        point="weights held elsewhere",
    ),
)

PROFILE = (
    _profile(
        "on startup. Desired GPU memory utilization is ",
        r"Free memory on device \((?P<free_gib>NUM)/(?P<device_total_gib>NUM) GiB\) on startup\. Desired GPU memory "
        r"utilization is \((?P<utilization_ratio>[0-9.e-]{1,24}), (?P<budget_gib>NUM) GiB\)\. Actual usage is "
        r"(?:(?P<weights_gib>NUM) GiB for weight|(?P<consumed_gib>NUM) GiB for consumed memory \(weights \+ non-torch\)), "
        r"(?P<activation_peak_gib>NUM) GiB for peak activation,(?: (?P<non_torch_gib>NUM) GiB for non-torch memory,)? and "
        r"(?P<graph_gib>NUM) GiB for CUDAGraph memory\..{0,80}?`--kv-cache-memory=(?P<fits_budget_bytes>NUM)`.{0,60}?"
        r"`--kv-cache-memory=(?P<fits_device_bytes>NUM)`.{0,60}? Current kv cache memory in use is "
        r"(?:(?P<kv_cache_gib>NUM) GiB|(?P<kv_cache_bytes>NUM) bytes)",
        source="v1/worker/gpu_worker.py, worker/worker.py; weights and non-torch apart 0.10.2-0.26, consumed from 0.27",
    ),
    _profile(
        "the current vLLM instance can use ",
        r"the current vLLM instance can use total_gpu_memory \((?P<device_total_gib>NUM)GiB\) x gpu_memory_utilization "
        r"\((?P<utilization_ratio>NUM)\) = (?P<budget_gib>NUM)GiB",
        source="worker/worker.py, 0.6.5-0.10.1",
    ),
    _profile(
        "model weights take ",
        r"model weights take (?P<weights_gib>NUM)GiB; non_torch_memory takes (?P<non_torch_gib>NUM)GiB; PyTorch activation "
        r"peak memory takes (?P<activation_peak_gib>NUM)GiB; the rest of the memory reserved for KV Cache is "
        r"(?P<kv_cache_gib>NUM)GiB",
        source="worker/worker.py, 0.6.5-0.10.1",
    ),
    _profile(
        "Memory profiling results: ",
        r"Memory profiling results: (?:duration=[0-9.]{1,20} seconds, )?total_gpu_memory=(?P<device_total_gib>NUM)GiB"
        r"[, ]{1,2}initial_memory_usage=(?P<initial_used_gib>NUM)GiB[, ]{1,2}peak_torch_memory=(?P<peak_torch_gib>NUM)GiB"
        r"[, ]{1,2}memory_usage_post_profile=(?P<used_gib>NUM)GiB[, ]{1,2}non_torch_memory=(?P<non_torch_gib>NUM)GiB"
        r"[, ]{1,2}kv_cache_size=(?P<kv_cache_gib>NUM)GiB[, ]{1,2}gpu_memory_utilization=(?P<utilization_ratio>NUM)",
        source="worker/worker.py, 0.6.4",
    ),
    _profile(
        "Total non KV cache memory: ",
        r"Memory profiling takes (?P<elapsed_s>NUM) seconds\. Total non KV cache memory: (?P<non_kv_gib>NUM)GiB; torch peak "
        r"memory increase: (?P<activation_peak_gib>NUM)GiB; (?:non-torch forward increase memory: (?P<non_torch_gib>NUM)|"
        r"total consumed \(from mem_get_info\): (?P<consumed_gib>NUM))GiB; weights memory: (?P<profiled_weights_gib>NUM)GiB",
        source="utils/mem_utils.py (utils/__init__.py to 0.11), from 0.9, debug; consumed from 0.27",
    ),
    _profile(
        "Free memory grew by ",
        r"Free memory grew by (?P<grown_gib>NUM) GiB during profiling \(initial (?P<free_gib>NUM) GiB, current "
        r"(?P<free_after_gib>NUM) GiB\)\. Sizing the KV cache from the (?P<reserved_gib>NUM) GiB torch reserved",
        source="v1/worker/gpu_worker.py, from 0.29",
    ),
    _memory(
        "worker init memory snapshot: ",
        r"worker init memory snapshot: torch_peak=NUMGiB, (?:torch_allocated=(?P<allocated_gib>NUM)GiB, )?"
        r"free_memory=(?P<free_gib>NUM)GiB, total_memory=(?P<device_total_gib>NUM)GiB, [A-Za-z]{2,12}_memory="
        r"(?P<used_gib>NUM)GiB, torch_memory=(?P<reserved_gib>NUM)GiB, non_torch_memory=(?P<outside_gib>NUM)GiB",
        source="v1/worker/gpu_worker.py, utils/mem_utils.py, from 0.16, debug",
        point="before load",
    ),
    _memory(
        "worker requested memory: ",
        r"worker requested memory: (?P<budget_gib>NUM)GiB",
        source="v1/worker/gpu_worker.py, from 0.16, debug",
        point="before load",
    ),
    _memory(
        "Initial free memory: ",
        r"Initial free memory: (?P<free_gib>NUM) GiB; Requested memory: (?P<utilization_ratio>NUM) \(util\), "
        r"(?P<budget_gib>NUM) GiB",
        source="v1/worker/gpu_worker.py, from 0.10.1, debug",
        point="before load",
    ),
    _memory(
        "requested GPU memory: ",
        r"Initial free memory: (?P<free_gib>NUM) GiB, free memory: (?P<free_after_gib>NUM) GiB, requested GPU memory: "
        r"(?P<budget_gib>NUM) GiB",
        source="v1/worker/gpu_worker.py, 0.9-0.10.0, debug",
        point="before load",
    ),
    _memory(
        "Free memory after profiling: ",
        r"Free memory after profiling: (?P<free_gib>NUM) GiB \(total\), (?P<budget_free_gib>NUM) GiB \(within requested\)",
        source="v1/worker/gpu_worker.py, from 0.10.1, debug",
        point="after profile",
    ),
    _memory(
        "Before memory profiling run, ",
        r"Before memory profiling run, total GPU memory: (?P<device_total_mib>NUM) MB, model load takes "
        r"(?P<allocated_mib>NUM) MB, free gpu memory is (?P<free_mib>NUM) MB",
        source="v1/worker/xpu_worker.py, 0.9-0.15",
        point="after load",
    ),
    _memory(
        "After memory profiling run, ",
        r"After memory profiling run, peak memory usage is (?P<peak_torch_mib>NUM) MB, ?torch mem is (?P<allocated_mib>NUM) "
        r"MB, non-torch mem is (?P<outside_mib>NUM) MB, free gpu memory is (?P<free_mib>NUM) MB",
        source="v1/worker/xpu_worker.py, 0.9-0.15",
        point="after profile",
    ),
    _memory(
        "Amount of memory required to run the model with max_num_batched_tokens=",
        r"Amount of memory required to run the model with max_num_batched_tokens=(?P<max_num_batched_tokens>NUM): "
        r"(?P<printed>[0-9.]{1,20} ?[A-Za-z]{0,3})",
        source="worker/openvino_worker.py, to 0.8.0",
        point="after profile",
    ),
    _memory("Memory usage before: ", r"Memory usage before: (?P<printed>.{1,200})", source="model_executor/model_loader/tensorizer.py", point="before load"),
    _memory("Memory usage after: ", r"Memory usage after: (?P<printed>.{1,200})", source="model_executor/model_loader/tensorizer.py", point="after load"),
    _memory(
        "of cached device memory under memory pressure",
        r"Released (?P<released_gib>NUM)GiB of cached device memory under memory pressure",
        source="utils/mem_utils.py, from 0.24, debug",
        point="cache released",
    ),
    _memory(
        "Startup plan not applied: ",
        r"Startup plan not applied: current free memory \((?P<free_gib>NUM) GiB\) is below the recorded baseline "
        r"\((?P<baseline_free_gib>NUM) GiB\)",
        source="v1/worker/startup_plan.py, from 0.26",
        point="before profile",
    ),
)  # fmt: skip

POOL = (
    _budget(
        "Available KV cache memory: ",
        r"Available KV cache memory: (?P<kv_cache_gib>NUM) GiB",
        source="v1/worker/gpu_worker.py, from 0.9.1",
    ),
    _budget(
        "memory for KV Cache as specified by kv_cache_memory_bytes",
        r"Initial free memory (?P<free_gib>NUM) GiB, reserved (?P<kv_cache_gib>NUM) ?GiB memory for KV Cache as specified",
        source="v1/worker/gpu_worker.py, worker/worker.py, from 0.10.2",
    ),
    _budget(
        "for frontend multimodal decoding",
        r"Reserving (?P<reserved_gib>NUM) GiB of GPU memory for frontend multimodal decoding .{0,200}?KV cache memory reduced to "
        r"(?P<kv_cache_gib>NUM) GiB",
        source="v1/worker/gpu_worker.py 0.25-0.26, multimodal/gpu_ipc_memory.py from 0.27",
    ),
    _budget(
        "Applying persisted startup plan ",
        r"Applying persisted startup plan \(fingerprint \S{1,80}\): kv_cache_memory_bytes=(?P<kv_cache_bytes>NUM) "
        r"\(NUM GiB\), recorded free-memory baseline (?P<baseline_free_gib>NUM) GiB, current (?P<free_gib>NUM) GiB",
        source="v1/worker/startup_plan.py, from 0.26",
    ),
    _budget(
        "GiB for KV cache on node ",
        r"Explicitly set \((?P<kv_cache_gib>NUM)/(?P<device_total_gib>NUM)\) GiB for KV cache on node (?P<node_id>NUM)",
        source="v1/worker/cpu_worker.py, from 0.20",
        is_stated=True,
    ),
    _budget(
        "GiB for KV cache on node ",
        r"Auto set \((?P<kv_cache_gib>NUM)/(?P<device_total_gib>NUM)\) GiB for KV cache on node (?P<node_id>NUM), with "
        r"(?P<budget_gib>NUM) GiB requested memory for the worker\. (?P<resident_gib>NUM) GiB memory was consumed",
        source="v1/worker/cpu_worker.py, from 0.20",
    ),
    _budget(
        "VLLM_CPU_KVCACHE_SPACE",
        r"VLLM_CPU_KVCACHE_SPACE not set\. Using (?P<kv_cache_gib>NUM) GiB for KV cache",
        source="platforms/cpu.py, 0.16-0.19",
    ),
    _pool(
        "KV cache size: ",
        r"(?P<pool_device>[A-Z][A-Za-z]{1,15}(?: \+ host)?) KV cache size: (?P<kv_tokens>NUM) tokens"
        r"(?:, Maximum concurrency for (?P<context_len>NUM) tokens per request: (?P<max_concurrency>NUM)x)?",
        source="v1/core/kv_cache_utils.py, from 0.8; concurrency in the same line from 0.28",
    ),
    _pool(
        "Maximum concurrency for ",
        r"Maximum concurrency for (?P<context_len>NUM) tokens per request: (?P<max_concurrency>NUM)x",
        source="executor/executor_base.py (V0), v1/core/kv_cache_utils.py 0.8-0.27",
    ),
    _pool(
        " blocks: ",
        r"# (?P<pool_device>[A-Za-z]{2,8}) blocks: (?P<num_blocks>NUM)(?:[,;] # (?:CPU|swap) blocks: (?P<swap_blocks>NUM))?",
        source="executor/*_executor.py to 0.6, executor/executor_base.py 0.7-0.11, v1/core/kv_cache_utils.py 0.6.6-0.7",
    ),
    _pool(
        "Overriding num_gpu_blocks=",
        r"Overriding num_gpu_blocks=(?P<profiled_blocks>NUM) with num_gpu_blocks_override=(?P<num_blocks>NUM)",
        source="engine/llm_engine.py (V0), v1/core/kv_cache_utils.py, v1/core/kv_cache_planning.py",
    ),
    _pool(
        "after num_gpu_blocks is: ",
        r"cache_config_info with initialization after num_gpu_blocks is: (?P<num_blocks>NUM)",
        source="v1/metrics/loggers.py, from 0.9; debug from 0.11.1",
    ),
    _pool(
        "Multiplying the GPU KV cache size by the ",
        r"Multiplying the GPU KV cache size by the d?cp_world_size (?P<context_shards_count>NUM)",
        source="v1/core/kv_cache_utils.py, 0.10.2-0.19",
    ),
    _pool(
        " padding layers, may waste at most ",
        r"Add (?P<padding_layers_count>NUM) padding layers, may waste at most (?P<padding_percent>NUM)% KV cache memory",
        source="v1/core/kv_cache_utils.py, v1/core/kv_cache_planning.py, from 0.9",
    ),
    _pool(
        "HiSparse HMA: ",
        r"HiSparse HMA: (?P<host_kv_gib>NUM) GiB host source \((?P<host_blocks>NUM) blocks\), (?P<kv_cache_gib>NUM) GiB "
        r"shared GPU [^(]{1,60}\((?P<num_blocks>NUM) blocks\)",
        source="v1/hisparse/layout.py, from 0.30",
    ),
    _pool(
        "Allocating a cross layer KV cache of shape ",
        r"Allocating a cross layer KV cache of shape (?P<shape>.{1,120})",
        source="v1/worker/kv_connector_model_runner_mixin.py, 0.12-0.27",
    ),
    _pool("kv cache group sizes ", r"kv cache group sizes (?P<group_sizes>.{1,300})", source="v1/core/kv_cache_utils.py, from 0.30"),
    _pool("kv lcm block sizes ", r"kv lcm block sizes (?P<lcm_block_sizes>.{1,300})", source="v1/core/kv_cache_utils.py, from 0.30"),
    _pool(
        "Registering KV_Caches. use_mla: ",
        r"Registering KV_Caches\..{0,160}?num_blocks: (?P<num_blocks>NUM), block_shape: (?P<block_shape>[^:]{1,80}), "
        r"per_layer_kv_cache_shape",
        source="distributed/kv_transfer/kv_connector/v1/nixl_connector.py, 0.10.1",
    ),
)  # fmt: skip

MEMORY_PATTERNS = WEIGHTS + PROFILE + POOL
