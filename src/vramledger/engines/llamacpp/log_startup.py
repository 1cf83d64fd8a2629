"""How llama.cpp words what it prints while it starts, builds of 2023 to b11549; and how Ollama words its own part.

Sizes are MiB (2^20), which builds before December 2023 write MB.

Source: llama.cpp common/common.cpp, common/fit.cpp, src/llama-model.cpp, llama-context.cpp, llama-kv-cache*.cpp,
llama-memory-recurrent.cpp, llama-adapter.cpp, tools/mtmd/clip.cpp, tools/server/server.cpp; llama.cpp of one file (to b4400):
src/llama.cpp. Which builds print a wording follows from start-up logs of that time.
"""

from __future__ import annotations

from vramledger.engines.log_pattern import LinePattern, line_pattern
from vramledger.observation import Event

_WHERE = r"(?P<where>[\w.:\[\]-]{1,60})"
_MIB = r"(?P<size_mib>NUM) Mi?B"
_MODEL = "llama.cpp src/llama-model.cpp"
_CONTEXT = "llama.cpp src/llama-context.cpp"
_FLAGS = (
    "n_seq_max", "n_ctx", "n_ctx_per_seq", "n_ctx_seq", "n_batch", "n_ubatch", "flash_attn", "kv_unified", "n_outputs_max",
    "n_rs_seq",
)  # fmt: skip

STARTUP: tuple[LinePattern, ...] = (
    line_pattern(
        Event.VERSION, "build_info: ",
        r"build_info: (?:b0|(?P<engine_version>b?[1-9][0-9]{0,5}))-(?P<commit>\w{1,40})",
        source="llama.cpp tools/server, 2026",
    ),
    *(
        line_pattern(
            Event.VERSION, anchor, rf"\b{anchor}(?:0|(?P<engine_version>[1-9][0-9]{{0,5}})) \((?P<commit>\w{{1,40}})\)",
            source="llama.cpp common (print_build_info), 2023 on",
        )
        for anchor in ("build: ", "build = ", "print_info: build ")
    ),
    line_pattern(
        Event.VERSION, "build info", r"build info \| .{0,200}?build=(?P<engine_version>[0-9]{1,6}) commit=\"?(?P<commit>\w{1,40})",
        source="llama.cpp examples/server, 2024",
    ),
    line_pattern(
        Event.VERSION, "(version ", r"Listening on .{1,100} \(version (?P<ollama_version>[\w.+-]{1,60})\)",
        source="ollama server/routes.go",
    ),
    line_pattern(
        Event.DEVICE, " MiB free)", r"  ?- (?P<where>[A-Za-z]\w{0,30}) *: (?P<device>.{1,160}?) \((?P<total_mib>NUM) MiB, (?P<free_mib>NUM) MiB free\)",
        source="llama.cpp common (device_info), 2026",
    ),
    line_pattern(
        Event.DEVICE, " MiB free", r"using device (?P<where>[\w.:\[\]-]{1,60}) \((?P<device>.{1,160}?)\)(?: \([\w:.]{1,40}\))? - (?P<free_mib>NUM) MiB free",
        source=f"{_MODEL}, b4400 on; src/llama.cpp before",
    ),
    line_pattern(
        Event.DEVICE, "compute capability", r"Device (?P<device_id>[0-9]{1,3}): (?P<device>.{1,160}?), compute capability",
        source="llama.cpp ggml-cuda (ggml_cuda_init)",
    ),
    line_pattern(
        Event.SETTINGS, 'msg="starting ', r'msg="starting (?:llama server|runner|go runner)" cmd="(?P<command>[^"]{1,4000})',
        source="ollama llm/server.go",
    ),
    line_pattern(
        Event.SETTINGS, 'request="{Operation:commit', r"request=\"\{Operation:commit (?P<request>[^\"]{1,4000})",
        source="ollama runner, 0.11 on",
    ),
    line_pattern(
        Event.MODEL, "loaded meta data with ", r"loaded meta data with NUM key-value pairs and (?P<tensors_count>NUM) tensors from (?P<model>.{1,400}?) \(version",
        source="llama.cpp src/llama-model-loader.cpp, 2023 on",
    ),
    line_pattern(
        Event.MODEL, "general.name", r"print_(?:info|meta): general\.name *= (?P<name>.{1,200})",
        source=f"{_MODEL} (print_info), 2023 on",
    ),
    line_pattern(
        Event.MODEL, "arch      ", r"print_(?:info|meta): arch +=? ?(?P<architecture>[\w.-]{1,60})",
        source=f"{_MODEL} (print_info), 2023 on",
    ),
    line_pattern(
        Event.MODEL, "n_ctx_train", r"print_(?:info|meta): n_ctx_train +=? ?(?P<trained_len>NUM)",
        source=f"{_MODEL} (print_info), 2023 on",
    ),
    line_pattern(
        Event.MODEL, "file type", r"print_info: file type +=? ?(?P<quantization>.{1,60})",
        source=f"{_MODEL} (print_info), 2025 on",
    ),
    line_pattern(
        Event.MODEL, "model ftype", r"print_meta: model ftype +=? ?(?P<quantization>.{1,60})",
        source="llama.cpp src/llama.cpp, 2023-2024",
    ),
    line_pattern(
        Event.MODEL, "loading draft model", r"loading draft model '(?P<draft_model>.{1,400}?)'",
        source="llama.cpp tools/server",
    ),
    line_pattern(
        Event.SETTINGS, "layers to GPU", r"offloaded (?P<offloaded_count>NUM)/(?P<layers_count>NUM) layers to GPU",
        source=f"{_MODEL}, 2023 on; ollama ml/backend/ggml",
    ),
    # Weights.
    line_pattern(
        Event.BUFFER, " model buffer size = ", rf"load_tensors: +{_WHERE} model buffer size = +{_MIB}",
        source=f"{_MODEL}, b3900 on", buffer="model",
    ),
    line_pattern(
        Event.BUFFER, " buffer size = ", rf"llm_load_tensors: +{_WHERE} buffer size = +{_MIB}",
        source="llama.cpp src/llama.cpp, January to October 2024", buffer="model",
    ),
    line_pattern(
        Event.BUFFER, "VRAM used", rf"llm_load_tensors: VRAM used *[:=] *{_MIB}",
        source="llama.cpp of 2023", buffer="model", where="VRAM",
    ),
    line_pattern(
        Event.BUFFER, "llm_load_tensors: ", rf"llm_load_tensors: (?:mem required|system memory used) *= *{_MIB}",
        source="llama.cpp of 2023", buffer="model", where="CPU",
    ),
    line_pattern(
        Event.BUFFER, "LoRA buffer size", rf": +{_WHERE} LoRA buffer size = +{_MIB}",
        source="llama.cpp src/llama-adapter.cpp, July 2024 on", buffer="LoRA",
    ),
    line_pattern(
        Event.SETTINGS, " backend", r"(?:CLIP|vision|audio) using (?P<projector_backend>\w{1,30}) backend",
        source="llama.cpp tools/mtmd/clip.cpp, 2024 on",
    ),
    line_pattern(
        Event.BUFFER, "model size: ", rf"(?:load_hparams|clip_model_load|clip_model_loader|clip_init|load_tensors): model size: +{_MIB}",
        source="llama.cpp tools/mtmd/clip.cpp, 2023 on", buffer="projector",
    ),
    line_pattern(
        Event.BUFFER, " compute buffer size = ", rf"(?:alloc|reserve)_compute_meta: +{_WHERE} compute buffer size = +{_MIB}",
        source="llama.cpp tools/mtmd/clip.cpp, 2025 on", buffer="projector compute",
    ),
    line_pattern(
        Event.BUFFER, "compute allocated memory", rf"compute allocated memory: {_MIB}",
        source="llama.cpp examples/llava/clip.cpp, to 2025", buffer="projector compute",
    ),
    # Context.
    line_pattern(
        Event.WARMUP, "constructing llama_context", r"constructing llama_context",
        source=f"{_CONTEXT}, 2025 on", step="context",
    ),
    *(
        line_pattern(
            Event.SETTINGS, f": {name} ", rf"(?:llama_context|llama_new_context_with_model|llama_init_from_model): {name} += (?P<{name}>[\w.-]{{1,20}})",
            source=f"{_CONTEXT}; src/llama.cpp, 2023 on",
        )
        for name in _FLAGS
    ),
    line_pattern(
        Event.WARMUP, "KV cache, size = ", r"creating +(?P<cache>non-SWA|SWA|indexer|main|[\w -]{1,40}?) ?KV cache, size = (?P<cells_count>NUM) cells",
        source="llama.cpp src/llama-kv-cache-iswa.cpp and its like, b5427 on", step="cache",
    ),
    line_pattern(
        Event.BUFFER, " KV buffer size = ", rf"(?:llama_kv_cache\w{{0,30}}|llama_memory\w{{0,30}}): +{_WHERE} KV buffer size = +{_MIB}",
        source="llama.cpp src/llama-kv-cache.cpp, January 2024 on", buffer="KV",
    ),
    line_pattern(
        Event.BUFFER, " RS buffer size = ", rf": +{_WHERE} RS buffer size = +{_MIB}",
        source="llama.cpp src/llama-memory-recurrent.cpp, 2025 on", buffer="RS",
    ),
    line_pattern(
        Event.BUFFER, "VRAM kv self", rf"llama_kv_cache_init: VRAM kv self = *{_MIB}",
        source="llama.cpp of 2023", buffer="KV", where="VRAM",
    ),
    line_pattern(
        Event.KV_POOL, " cells,", r"llama_kv_cache\w{0,30}: +size = +(?P<kv_cache_mib>NUM) MiB \( *(?P<cells_count>NUM) cells, +(?P<layers_count>NUM) layers, +"
        r"(?P<sequences_count>NUM)(?:/(?P<streams_count>NUM))? seqs\), +K \((?P<key_type>\w{1,10})\): +(?P<key_mib>NUM) MiB, V \((?P<value_type>\w{1,10})\): +(?P<value_mib>NUM) MiB",
        source="llama.cpp src/llama-kv-cache.cpp, b5427 on; streams since b5912",
    ),
    line_pattern(
        Event.KV_POOL, "kv self size ", r"kv self size += +(?P<kv_cache_mib>NUM) Mi?B",
        source="llama.cpp of 2023",
    ),
    line_pattern(
        Event.KV_POOL, "KV self size ", r"KV self size += +(?P<kv_cache_mib>NUM) MiB, K \((?P<key_type>\w{1,10})\): +(?P<key_mib>NUM) MiB, "
        r"V \((?P<value_type>\w{1,10})\): +(?P<value_mib>NUM) MiB",
        source="llama.cpp src/llama.cpp, December 2023 to May 2025",
    ),
    line_pattern(
        Event.STATE_POOL, " rs_seq", r"llama_memory_recurrent: size = +(?P<state_mib>NUM) MiB \( *(?P<cells_count>NUM) cells, +(?P<layers_count>NUM) layers, +"
        r"(?P<sequences_count>NUM) seqs +(?P<snapshots_count>NUM) rs_seq\), +R \(f32\): +(?P<shift_mib>NUM) MiB, +S \(f32\): +(?P<ssm_mib>NUM) MiB",
        source="llama.cpp src/llama-memory-recurrent.cpp, 2026",
    ),
    line_pattern(
        Event.STATE_POOL, "llama_memory_recurrent: ", r"llama_memory_recurrent: size = +(?P<state_mib>NUM) MiB \( *(?P<cells_count>NUM) cells, +(?P<layers_count>NUM) layers, +"
        r"(?P<sequences_count>NUM) seqs\), +R \(f32\): +(?P<shift_mib>NUM) MiB, +S \(f32\): +(?P<ssm_mib>NUM) MiB",
        source="llama.cpp src/llama-memory-recurrent.cpp, 2025",
    ),
    line_pattern(
        Event.BUFFER, " output buffer size = ", rf": +{_WHERE} +output buffer size = +{_MIB}",
        source=f"{_CONTEXT}; src/llama.cpp, March 2024 on", buffer="output",
    ),
    line_pattern(
        Event.BUFFER, " input buffer size ", rf": +{_WHERE} input buffer size += +{_MIB}",
        source="llama.cpp src/llama.cpp, January to March 2024", buffer="input",
    ),
    line_pattern(
        Event.BUFFER, " compute buffer size = ", rf"(?:sched_reserve|llama_context|llama_init_from_model|llama_new_context_with_model|graph_reserve): +{_WHERE} compute buffer size = +{_MIB}",
        source=f"{_CONTEXT}; src/llama.cpp, January 2024 on", buffer="compute",
    ),
    line_pattern(
        Event.BUFFER, "compute buffer total size", rf"compute buffer total size = *{_MIB}",
        source="llama.cpp of 2023", buffer="compute", where="total",
    ),
    line_pattern(
        Event.BUFFER, "VRAM scratch buffer", rf"VRAM scratch buffer: *{_MIB}",
        source="llama.cpp of 2023", buffer="compute", where="VRAM",
    ),
    line_pattern(
        Event.MEMORY, "total VRAM used", r"total VRAM used: (?P<used_mib>NUM) Mi?B \(model: (?P<model_mib>NUM) Mi?B, context: (?P<context_mib>NUM) Mi?B\)",
        source="llama.cpp of 2023", point="context made",
    ),
)  # fmt: skip
