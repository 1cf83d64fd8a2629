"""How llama.cpp words fitting, its memory table and its server's work, and what Ollama prints of a loaded model.

Source: llama.cpp common/fit.cpp (src/llama.cpp and llama-context.cpp before), tools/server/server*.cpp; ollama ml/backend/ggml,
llm/memory.go, ml/device.go.
"""

from __future__ import annotations

from vramledger.engines.log_pattern import LinePattern, line_pattern
from vramledger.observation import Event

_PRINT = r"memory_breakdown_print: \|   - "
_SELF = r"\( *(?P<self_mib>NUM) = +(?P<model_mib>NUM) \+ +(?P<context_mib>NUM) \+ +(?P<compute_mib>NUM)\)"
_TABLE = "llama.cpp common (common_memory_breakdown_print); llama_memory_breakdown_print, b6565 on"

TABLE: tuple[LinePattern, ...] = (
    line_pattern(
        Event.MEMORY, "memory_breakdown_print: ",
        rf"{_PRINT}(?P<where>[\w.:\[\]-]{{1,60}}) \((?P<device>.{{1,160}}?)\) *\| +(?P<total_mib>NUM) = +(?P<free_mib>NUM) \+ {_SELF} \+ +(?P<unaccounted_mib>NUM) *\|",
        source=_TABLE, point="memory table",
    ),
    line_pattern(
        Event.MEMORY, "memory_breakdown_print: ",
        rf"{_PRINT}(?P<where>[\w.:\[\]-]{{1,60}}) *\| +(?P<self_mib>NUM) = +(?P<model_mib>NUM) \+ +(?P<context_mib>NUM) \+ +(?P<compute_mib>NUM) +\|",
        source=_TABLE, point="memory table",
    ),
    line_pattern(
        Event.KV_BUDGET, "projected to use ",
        r"projected to use (?P<projected_mib>NUM) MiB of (?P<domain>device|host) memory vs\. (?P<free_mib>NUM) MiB of",
        source="llama.cpp common_params_fit_impl; llama_params_fit_impl, b7405 on",
    ),
    line_pattern(
        Event.KV_BUDGET, "context size reduced from ", r"context size reduced from (?P<asked_tokens>NUM) to (?P<fitted_tokens>NUM)",
        source="llama.cpp common_params_fit_impl, b7405 on",
    ),
)  # fmt: skip

SERVING: tuple[LinePattern, ...] = (
    line_pattern(
        Event.SETTINGS, "n_slots = ", r"initializing(?: slots)?, n_slots = (?P<n_slots>[0-9]{1,6})(?:, n_ctx_slot = (?P<n_ctx_slot>[0-9]{1,9}))?(?:, kv_unified = '(?P<kv_unified>\w{1,5})')?",
        source="llama.cpp tools/server (load_model), 2024 on",
    ),
    line_pattern(
        Event.SETTINGS, "n_ctx_slot = ", r"new slot,? (?:n_ctx_slot|n_ctx) = (?P<n_ctx_slot>[0-9]{1,9})",
        source="llama.cpp tools/server (init), 2024-2025",
    ),
    line_pattern(
        Event.SETTINGS, "prompt cache is enabled", r"prompt cache is enabled, size limit: (?P<cache_ram>[0-9]{1,9}) MiB",
        source="llama.cpp tools/server, b6704 on",
    ),
    line_pattern(
        Event.MEMORY, "cache state: ", r"cache state: (?P<prompts_count>NUM) prompts, (?P<prompt_cache_mib>NUM) MiB \(limits: (?P<limit_mib>NUM) MiB, (?P<limit_tokens>NUM) tokens",
        source="llama.cpp tools/server (server_prompt_cache), b6704 on", point="prompt cache",
    ),
    line_pattern(
        Event.MEMORY, "created context checkpoint ", r"slot .{0,40}?id +(?P<slot_id>NUM) .{0,60}?created context checkpoint (?P<checkpoint_count>NUM) of NUM .{0,200}?size = (?P<checkpoint_mib>NUM) MiB",
        source="llama.cpp tools/server, October 2025 on", point="checkpoint",
    ),
    line_pattern(
        Event.READY, "server is listening on ", r"server is listening on ",
        source="llama.cpp tools/server (main), 2024-2026",
    ),
    line_pattern(
        Event.READY, "listening on http", r"init: listening on https?://",
        source="llama.cpp tools/server, 2026",
    ),
    line_pattern(
        Event.READY, "HTTP server listening", r"HTTP server listening|llama server listening at",
        source="llama.cpp examples/server, 2023-2024",
    ),
    line_pattern(
        Event.READY, "llama server listening at ", r"llama server listening at ",
        source="llama.cpp examples/server, 2023",
    ),
    line_pattern(
        Event.READY, "llama runner started in ", r"llama runner started in (?P<took_s>NUM) seconds",
        source="ollama llm/server.go",
    ),
    line_pattern(
        Event.STEP, "processing task", r"slot .{0,40}?id +(?P<slot_id>NUM) \| task (?P<request>NUM) \| processing task",
        source="llama.cpp tools/server (launch_slot_), 2024 on", phase="launched",
    ),
    line_pattern(
        Event.ADMITTED, "new prompt, ", r"slot .{0,40}?id +(?P<slot_id>NUM) \| task (?P<request>NUM) \| new prompt, n_ctx_slot = (?P<context_len>NUM), .{0,60}?(?:task\.n_tokens|n_prompt_tokens) = (?P<prompt_tokens>NUM)",
        source="llama.cpp tools/server (update_slots), 2024 on",
    ),
    line_pattern(
        Event.STEP, "prompt processing progress", r"slot .{0,40}?id +(?P<slot_id>NUM) \| task (?P<request>NUM) \| prompt processing progress, n_(?:past|tokens) = (?P<slot_tokens>NUM), (?:n_tokens|batch\.n_tokens) = (?P<scheduled_tokens>NUM)",
        source="llama.cpp tools/server (update_slots), 2024 on", phase="prefill",
    ),
    line_pattern(
        Event.STEP, "stop processing: ", r"slot .{0,40}?id +(?P<slot_id>NUM) \| task (?P<request>NUM) \| stop processing: n_(?:tokens|past) = (?P<slot_tokens>NUM), truncated = (?P<truncated_count>NUM)",
        source="llama.cpp tools/server (release), 2024 on", phase="released",
    ),
    line_pattern(
        Event.STEP, "all slots are idle", r"all slots are idle",
        source="llama.cpp tools/server (update_slots), 2023 on", running_requests=0, phase="idle",
    ),
    line_pattern(
        Event.PREEMPTION, "failed to find free space in the KV cache", r"failed to find free space in the KV cache, retrying with smaller batch size.{0,20}?(?:off|i) = NUM, n_batch = (?P<batch_tokens>NUM)",
        source="llama.cpp tools/server (update_slots), 2023 on", preempted_requests=0,
    ),
    line_pattern(
        Event.PREEMPTION, "purging slot ", r"purging slot (?P<slot_id>NUM) with (?P<purged_tokens>NUM) tokens",
        source="llama.cpp tools/server, 2025 on", preempted_requests=0,
    ),
)  # fmt: skip

_SIZE = r"\"?(?:(?P<size_gib>NUM) GiB|(?P<size_mib>NUM) MiB|(?P<size_kib>NUM) KiB|(?P<size_bytes>NUM) B)"

OLLAMA: tuple[LinePattern, ...] = (
    line_pattern(
        Event.BUFFER, 'msg="model weights"', rf'msg="model weights" (?:device|buffer)=(?P<where>[\w.:-]{{1,60}}) size={_SIZE}',
        source="ollama ml/backend/ggml/ggml.go, ml/backend.go; ml/device.go since 0.12", buffer="model", rounded_by="ollama",
    ),
    line_pattern(
        Event.BUFFER, 'msg="kv cache"', rf'msg="kv cache" (?:device|buffer)=(?P<where>[\w.:-]{{1,60}}) size={_SIZE}',
        source="ollama ml/backend.go; ml/device.go since 0.12", buffer="KV", rounded_by="ollama",
    ),
    line_pattern(
        Event.BUFFER, 'msg="compute graph"', rf'msg="compute graph" (?:backend=[\w.:-]{{1,60}} )?(?:device|buffer_type)=(?P<where>[\w.:-]{{1,60}}) size={_SIZE}',
        source="ollama ml/backend/ggml/ggml.go, ml/backend.go; ml/device.go since 0.12", buffer="compute", rounded_by="ollama",
    ),
    line_pattern(
        Event.DEVICE, 'msg="inference compute"', r'msg="inference compute" .{0,400}?library=(?P<library>\w{1,20}) .{0,400}?(?:name|description)="?(?P<device>[^"=]{1,160}?)"? .{0,600}?total="(?P<total_gib>NUM) GiB" available="(?P<free_gib>NUM) GiB"',
        source="ollama gpu/types.go, discover/types.go",
    ),
    line_pattern(
        Event.KV_BUDGET, 'msg="offload to ', r'msg="?offload(?: to)? (?P<domain>\w{1,10})"? layers\.requested=(?P<asked_count>NUM) layers\.model=(?P<layers_count>NUM) layers\.offload=(?P<offloaded_count>NUM) '
        r'.{0,400}?memory\.required\.kv="(?:(?P<kv_cache_gib>NUM) GiB|(?P<kv_cache_mib>NUM) MiB)"',
        source="ollama llm/memory.go, to 0.11: an estimate",
    ),
)  # fmt: skip
