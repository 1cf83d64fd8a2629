"""How SGLang words parts of memory beside weights, pools and graphs of a common start: workspaces, arenas, caches of its own.

Source: files of sglang srt/ as named, 0.4.3 to 0.5.23.
"""

from __future__ import annotations

from vramledger.engines.log_pattern import LinePattern, line_pattern
from vramledger.observation import Event

PARTS: tuple[LinePattern, ...] = (
    line_pattern(
        Event.BUFFER, "Full-CG prefill workspace: ", r"Full-CG prefill workspace: (?P<size_mib>NUM) MB",
        source="layers/attention/flashinfer_backend.py, 0.5.15 on", buffer="attention workspace",
    ),
    line_pattern(
        Event.BUFFER, "workspace preallocated (max_cols=", r"DSA indexer: workspace preallocated \(max_cols=NUM, (?P<size_mib>NUM) MiB\)",
        source="layers/attention/dsa/gfx950_fused_indexer.py, 0.5.23", buffer="indexer workspace",
    ),
    line_pattern(
        Event.BUFFER, "All Reduce config: ", r"All Reduce config: symmetric_memory = (?P<size_mib>NUM) MB, local_buffer = (?P<local_mib>NUM) MB",
        source="distributed/device_communicators/custom_all_reduce_v2.py, 0.5.18 on", buffer="all-reduce",
    ),
    line_pattern(
        Event.BUFFER, "EPLB default-group P2P warmup", r"EPLB default-group P2P warmup completed in NUMs \(world_size=NUM, free memory delta=(?P<size_mib>NUM) MiB",
        source="distributed/bootstrap.py, 0.5.22 on", buffer="expert moves' channels",
    ),
    line_pattern(
        Event.BUFFER, "reserving up to ", r"for multimodal features.{0,60}?: reserving up to (?P<size_mib>NUM) MiB on base GPU (?P<device_id>[0-9]{1,4})",
        source="server_args.py, arg_groups/serving_hook.py since 0.5.19", buffer="multimodal features",
    ),
    line_pattern(
        Event.BUFFER, "MB GPU buffer", r"Preallocated (?P<size_mib>NUM)MB GPU buffer",
        source="managers/mm_utils.py", buffer="multimodal features",
    ),
    line_pattern(
        Event.BUFFER, "HiCache staging prepared before KV sizing: ", r"HiCache staging prepared before KV sizing: (?P<size_mib>NUM) MiB",
        source="mem_cache/kv_cache_builder.py, 0.5.21 on", buffer="HiCache staging",
    ),
    line_pattern(
        Event.BUFFER, "DeviceCache[", r"DeviceCache\[(?P<pool>[^\]]{1,60})\] allocated: .{0,200}?size=(?P<size_mib>NUM) MB",
        source="state_capturer/base.py, 0.5.18 on", buffer="captured states",
    ),
    line_pattern(
        Event.BUFFER, "Routing experts device buffer allocated.", r"Routing experts device buffer allocated\. .{0,120}?size: (?P<size_mib>NUM) MB",
        source="layers/moe/routed_experts_capturer.py, 0.5.7-0.5.10", buffer="routed experts",
    ),
    line_pattern(
        Event.BUFFER, "Post-capture KV sizing: KV-canary", r"Post-capture KV sizing: KV-canary per-forward workspace (?P<size_gib>NUM) GB",
        source="model_executor/model_runner_components/kv_pool_runtime.py, 0.5.20 on", buffer="KV canary",
    ),
    line_pattern(
        Event.BUFFER, "Graph pool ", r"Graph pool (?:borrow )?pre-carved: (?:(?P<size_mib>NUM) MiB|(?P<size_gib>NUM) GB)",
        source="model_executor/runner_utils/pool.py, 0.5.20 on", buffer="graph pool",
    ),
    line_pattern(
        Event.MEMORY, "Graph pool borrow high-water mark: ", r"Graph pool borrow high-water mark: (?P<used_mib>NUM) MiB used of (?P<pool_mib>NUM) MiB available",
        source="model_executor/runner_utils/pool.py, 0.5.20 on", point="graph pool",
    ),
    line_pattern(
        Event.GRAPH_SHAPE, ": captured ", r": captured (?P<shape_size>NUM) rows \(NUM segments\) in (?P<took_s>NUM) s, (?P<graph_gib>NUM) GiB",
        source="model_executor/runner/row_bucket_graph_runner.py, 0.5.23", axis="rows",
    ),
    line_pattern(
        Event.STATE_POOL, "GDN ReplaySSM ring buffers allocated", r"GDN ReplaySSM ring buffers allocated .{0,80}?: d=(?P<ring_d_gib>NUM)GB, k=(?P<ring_k_gib>NUM)GB, g=(?P<ring_g_gib>NUM)GB",
        source="mem_cache/memory_pool.py, 0.5.20 on",
    ),
    line_pattern(
        Event.STATE_POOL, "[unified-memory-pool]", r"\[unified-memory-pool\] +total_bytes=(?P<arena_bytes>[0-9]{1,18})\b",
        source="mem_cache/unified_memory_pool.py, 0.5.15 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "DSV4 memory calculation: ", r"DSV4 memory calculation: .{0,120}?available_bytes=(?P<kv_cache_gib>NUM) GB.{0,300}?full_token=(?P<full_tokens>NUM)",
        source="model_executor/pool_configurator.py, 0.5.12 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "Post-capture KV sizing: full_layer_tokens=", r"Post-capture KV sizing: full_layer_tokens=(?P<full_tokens>NUM), swa_layer_tokens=(?P<window_tokens>NUM)",
        source="model_executor/model_runner_components/kv_pool_runtime.py, 0.5.18 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "SWA ring: ", r"SWA ring: swa_max_total_num_tokens NUM -> (?P<window_tokens>NUM)",
        source="mem_cache/kv_cache_configurator.py, 0.5.20 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "fewer than --context-length ", r"KV pool holds (?P<kv_tokens>NUM) tokens, fewer than --context-length (?P<asked_len>NUM)",
        source="managers/tp_worker.py, 0.5.23",
    ),
    line_pattern(
        Event.KV_BUDGET, "max_running_requests was reduced from ", r"max_running_requests was reduced from the requested (?P<asked_requests>NUM) to (?P<reduced_requests>NUM)",
        source="mem_cache/kv_cache_configurator.py, 0.5.18 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "HiCache auto-sizing: ", r"HiCache auto-sizing: ratio (?P<asked_ratio>NUM) -> (?P<fitted_ratio>NUM); (?P<host_gib>NUM) GiB host memory per rank",
        source="mem_cache/hicache_auto_size.py, 0.5.21 on",
    ),
    line_pattern(
        Event.MEMORY, "torch.cuda.empty_cache() called", r"torch\.cuda\.empty_cache\(\) called: reserved (?P<before_mib>NUM) MB -> (?P<reserved_mib>NUM) MB",
        source="managers/scheduler.py, 0.5.10 on", point="cache emptied",
    ),
    line_pattern(
        Event.DEVICE, "Reported total GPU memory per device", r"Reported total GPU memory per device \(MiB\): .{0,200}?, using min: (?P<total_mib>NUM) MiB",
        source="utils/common.py, 0.5.10 on",
    ),
    line_pattern(
        Event.PREEMPTION, "retract_decode: aborted ", r"retract_decode: aborted (?:last )?request (?P<request>[\w-]{1,100})",
        source="managers/schedule_batch.py, 0.5.10 on", preempted_requests=0, aborted_requests=1,
    ),
)  # fmt: skip
