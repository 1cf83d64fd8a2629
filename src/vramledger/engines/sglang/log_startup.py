"""How SGLang words what it prints while it starts, 0.1.17 to 0.5.23. "GB" of device memory in it is GiB.

Source: sglang srt/entrypoints/engine.py, model_executor/model_runner.py, mem_cache/memory_pool.py, swa_memory_pool.py,
mem_cache/pool_host, model_executor/cuda_graph_runner.py, managers/scheduler.py (managers/tp_worker.py to 0.3,
managers/controller to 0.2.6). Releases are those whose sources were read.
"""

from __future__ import annotations

from vramledger.engines.log_pattern import LinePattern, line_pattern
from vramledger.observation import Event

_RUNNER = "sglang srt/model_executor/model_runner.py"
_POOLS = "sglang srt/mem_cache/memory_pool.py"
_RANK = r"(?:\[(?:gpu|gpu_id|rank)=(?P<rank_id>[0-9]{1,6})\] )?"
_LONG = r"[0-9]+(?:\.[0-9]{1,20})?"

_CAPTURE = r"Capture (?P<capture>[\w./ -]{1,80}?) "

STARTUP: tuple[LinePattern, ...] = (
    line_pattern(
        Event.SETTINGS,
        "server_args=",
        r"(?s)server_args=(?P<arguments>(?:ServerArgs\(|\{).*)",
        source="sglang srt/entrypoints/engine.py, server.py to 0.3; a call to 0.5.18, a dictionary since 0.5.19",
    ),
    line_pattern(
        Event.MEMORY,
        "Memory baseline taken. mem usage=",
        r"Memory baseline taken\. mem usage=(?P<used_gib>NUM) GB",
        source="sglang srt/distributed/bootstrap.py, 0.5.21 on",
        point="distributed init",
    ),
    line_pattern(
        Event.MEMORY,
        "Init torch distributed ends.",
        r"Init torch distributed ends\. (?:elapsed=(?P<took_s>NUM) s, )?mem usage=(?P<used_gib>NUM) GB",
        source=f"{_RUNNER}, 0.4.3-0.5.15; distributed/bootstrap.py to 0.5.20",
        point="distributed init",
    ),
    line_pattern(
        Event.LOAD_BEGIN,
        "Load weight begin. avail mem=",
        _RANK + r"Load weight begin\. avail mem=(?P<free_gib>NUM) GB",
        source=f"{_RUNNER}, all",
    ),
    line_pattern(
        Event.LOAD_BEGIN,
        "Init torch begin. Avail mem=",
        _RANK + r"Init torch begin\. Avail mem=(?P<free_gib>NUM) GB",
        source="sglang srt/managers/router/model_runner.py, 0.1.17",
    ),
    line_pattern(
        Event.WEIGHTS,
        "Load weight end.",
        _RANK
        + r"Load weight end\. (?:elapsed=(?P<took_s>NUM) s, )?[Tt]ype=(?P<architecture>\w{1,200})[.,]"
        r"(?:.{0,60}? quant=(?P<quantization>[^,]{1,100}))?(?:.{0,100}? dtype=(?P<dtype>[\w.]{1,60}))?"
        r".{0,200}? [Aa]vail mem=(?P<free_gib>NUM) GB(?:, mem usage=(?P<weights_gib>NUM) GB)?",
        source=f"{_RUNNER}, all; mem usage since 0.4.3, quantization since 0.5.10",
    ),
    line_pattern(
        Event.KV_BUDGET,
        "is larger than the profiled value",
        r"max_total_tokens=(?P<asked_tokens>NUM) is larger than the profiled value (?P<profiled_tokens>NUM)\.",
        source=f"{_RUNNER}, 0.2.10-0.5.9",
    ),
    line_pattern(
        Event.KV_BUDGET,
        "of the KV budget for post-sizing multimodal allocations",
        r"Reserving (?P<reserved_gib>NUM) GB of the KV budget for post-sizing multimodal allocations",
        source="sglang srt/mem_cache/kv_cache_configurator.py, 0.5.18 on",
    ),
    line_pattern(
        Event.KV_BUDGET,
        "liding window memory pool",
        r"Use [Ss]liding window memory pool\. full_layer_tokens=(?P<full_tokens>NUM), swa_layer_tokens=(?P<window_tokens>NUM)",
        source=f"{_RUNNER}, 0.5.2 on",
    ),
    line_pattern(
        Event.KV_BUDGET,
        "liding window memory pool (all SWA)",
        r"Use [Ss]liding window memory pool \(all SWA\)\. swa_layer_tokens=(?P<window_tokens>NUM)",
        source=f"{_RUNNER}, 0.5.9 on",
    ),
    line_pattern(
        Event.STATE_POOL,
        "Mamba Cache is allocated.",
        r"Mamba Cache is allocated\. (?:max_mamba_cache_size: (?P<state_slots_count>NUM), )?"
        r"conv_state size: (?P<conv_gib>NUM)GB, ssm_state size: (?P<ssm_gib>NUM)GB"
        r"(?: {1,4}intermediate_ssm_state_cache size: (?P<draft_ssm_gib>NUM)GB)?"
        r"(?: {1,4}intermediate_conv_window_cache size: (?P<draft_conv_gib>NUM)GB)?",
        source=f"{_POOLS}, 0.5.4 on; slots since 0.5.4",
    ),
    line_pattern(
        Event.STATE_POOL,
        "int8 mamba checkpoint pool: ",
        r"int8 mamba checkpoint pool: (?P<state_slots_count>NUM) slots, (?P<checkpoint_gib>NUM)GB",
        source="sglang srt/mem_cache/mamba_checkpoint_pool.py, 0.5.14 on",
    ),
    line_pattern(
        Event.STATE_POOL,
        "DSV4 pool sizes: ",
        r"DSV4 pool sizes: full=(?P<full_tokens>NUM), swa=(?P<window_tokens>NUM), c4=(?P<c4_tokens>NUM), "
        r"c128=(?P<c128_tokens>NUM), c4_state=(?P<c4_state_count>NUM), c128_state=(?P<c128_state_count>NUM)",
        source="sglang srt/model_executor/pool_configurator.py, 0.5.12 on",
    ),
    line_pattern(
        Event.KV_POOL,
        "Post-capture KV sizing: KV cache allocated.",
        r"Post-capture KV sizing: KV cache allocated\. dtype: (?P<dtype>[\w.]{1,60}), #tokens: (?P<kv_tokens>NUM), "
        r"KV size: (?P<kv_cache_gib>NUM) GB, avail mem=(?P<free_gib>NUM) GB",
        source="sglang srt/model_executor/model_runner_components/kv_pool_runtime.py, 0.5.18 on",
        pool="after capture",
    ),
    line_pattern(
        Event.KV_POOL,
        "Post-capture KV sizing: draft KV cache allocated.",
        r"Post-capture KV sizing: draft KV cache allocated\. dtype: (?P<dtype>[\w.]{1,60}), "
        r"#tokens: (?P<kv_tokens>NUM), KV size: (?P<kv_cache_gib>NUM) GB",
        source="sglang srt/model_executor/model_runner_components/kv_pool_runtime.py, 0.5.22 on",
        pool="draft after capture",
    ),
    line_pattern(
        Event.KV_BUDGET,
        "KV Cache VA upper bound.",
        r"KV Cache VA upper bound\. dtype: (?P<dtype>[\w.]{1,60}), #tokens: (?P<reserved_tokens>NUM), ",
        source=f"{_POOLS}, 0.5.18 on: addresses, not memory",
    ),
    line_pattern(
        Event.KV_POOL,
        "KV Cache is allocated.",
        r"(?:(?P<pool>[A-Z][\w.-]{1,20}(?: [\w.-]{1,20}){0,3}) )?KV Cache is allocated\. (?:dtype: (?P<dtype>[\w.]{1,60}), )?#tokens: (?P<kv_tokens>NUM), "
        r"(?:K size: (?P<key_gib>NUM) GB, V size: (?P<value_gib>NUM) GB|KV size: (?P<kv_cache_gib>NUM) GB)",
        source=f"{_POOLS}, 0.4.3 on; dtype since 0.5.13, SWA and Full since 0.5.18",
    ),
    line_pattern(
        Event.STATE_POOL,
        "SWAKVPool mem usage: ",
        rf"SWAKVPool mem usage: (?P<both_gib>{_LONG}) GB, swa size: (?P<window_tokens>NUM), full size: (?P<full_tokens>NUM)",
        source=f"{_POOLS}, 0.5.4-0.5.7; swa_memory_pool.py since 0.5.8",
    ),
    line_pattern(
        Event.STATE_POOL,
        "[unified-memory-pool] UnifiedKVPool",
        r"UnifiedKVPool [\w ]{1,60}: total_bytes=NUM GB \(=(?P<arena_bytes>NUM) B\)",
        source="sglang srt/mem_cache/unified_memory_pool.py, 0.5.15 on",
    ),
    line_pattern(
        Event.MEMORY,
        "Memory pool end. avail mem=",
        _RANK + r"Memory pool end\. avail mem=(?P<free_gib>NUM) GB",
        source=f"{_RUNNER}, all; mem_cache/kv_cache_configurator.py since 0.5.18",
        point="memory pool end",
    ),
    line_pattern(
        Event.WARMUP,
        "Capture ",
        _CAPTURE + r"begin\b.{0,6000}?avail mem=(?P<free_gib>NUM) GB",
        source=f"{_RUNNER} and speculative/, 0.4.3 on",
        step="capture begins",
    ),
    line_pattern(
        Event.GRAPHS,
        "Capture ",
        _CAPTURE
        + r"end\. .{0,6000}?[Ee]lapsed[=:] ?(?P<took_s>NUM) s[,.] mem usage=(?P<graph_gib>NUM) GB[,.] "
        r"avail mem=(?P<free_gib>NUM) GB",
        source=f"{_RUNNER} and speculative/, 0.4.6.post2 on",
    ),
    line_pattern(
        Event.GRAPHS,
        "Capture ",
        _CAPTURE + r"end\. Time elapsed: (?P<took_s>NUM) s\. avail mem=(?P<free_gib>NUM) GB"
        r"(?:\. mem usage=(?P<graph_gib>NUM) GB)?",
        source=f"{_RUNNER} and speculative/, 0.4.3-0.4.6.post5",
    ),
    line_pattern(
        Event.GRAPH_SHAPE,
        "avail_mem=",
        r"Capturing (?:batches|prefill shape|num tokens) \((?P<axis>bs|num_tokens)=(?P<shape_size>NUM) "
        r"avail_mem=(?P<free_gib>NUM) GB\)",
        source="sglang srt/model_executor/cuda_graph_runner.py and runner/, 0.4.3 on; free before the size is captured",
    ),
    line_pattern(
        Event.KV_POOL,
        "max_total_num_tokens=",
        _RANK
        + r"max_total_num_tokens=(?P<kv_tokens>NUM), (?:chunked_prefill_size=(?:(?P<chunked_prefill_size>NUM)|None), )?"
        r"max_prefill_tokens=(?P<max_prefill_tokens>NUM), (?:max_running_requests=(?P<max_running_requests>NUM), )?"
        r"context_len=(?P<context_len>NUM)(?:, available_[cg]pu_mem=(?P<free_gib>NUM) GB)?",
        source="sglang srt/managers/scheduler.py, tp_worker.py to 0.3, all; free memory since 0.4.7",
        point="start-up ends",
    ),
    line_pattern(
        Event.BUFFER,
        "symmetric memory pool with",
        r"Pre-allocating symmetric memory pool with (?P<size_gib>NUM) GiB",
        source=f"{_RUNNER}, 0.5.9 on",
        buffer="symmetric memory",
    ),
    line_pattern(
        Event.BUFFER,
        "GB host memory",
        r"Allocating (?:(?P<pool>[^:]{1,40}) hierarchical KV host pool: (?P<kv_tokens>NUM) tokens, )?(?P<size_gb>NUM) GB host "
        r"memory(?: for (?P<purpose>[\w -]{1,60}))?",
        source=f"{_POOLS}, 0.4.3-0.5.12; memory_pool_host.py and pool_host/ since 0.4.7; decimal GB",
        buffer="host pool",
    ),
    line_pattern(
        Event.MEMORY,
        "LoRA adapter ",
        r"LoRA adapter (?P<action>(?:un)?loading (?:starts|completes)): .{0,2000}avail mem=(?P<free_gib>NUM) GB",
        source=f"{_RUNNER}, 0.4.9-0.5.15; lora/lora_manager.py since 0.5.18",
        point="adapter",
    ),
    line_pattern(
        Event.MEMORY,
        " begin. avail mem=",
        r"Update (?:engine weights online from disk|weights) begin\. avail mem=(?P<free_gib>NUM) GB",
        source=f"{_RUNNER}, 0.2.15 on",
        point="weight update",
    ),
    line_pattern(
        Event.READY,
        "The server is fired up and ready to roll!",
        r"The server is fired up and ready to roll!",
        source="sglang srt/entrypoints/http_server.py, server.py to 0.3",
    ),
)  # fmt: skip
