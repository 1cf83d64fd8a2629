"""vLLM's log lines about single settings that it chooses or changes itself."""

from __future__ import annotations

from functools import partial

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

_settings = partial(line_pattern, Event.SETTINGS)

CHOICE_PATTERNS = (
    _settings(
        "max_num_batched_tokens",
        r"(?:Chunked prefill is enabled with max_num_batched_tokens=|[Ss]etting max_num_batched_tokens to |"
        r"Defaulting max_num_batched_tokens to |Raising max_num_batched_tokens from NUM to )"
        r"(?P<max_num_batched_tokens>NUM)",
        source="config/scheduler.py (config.py to 0.10.1), engine/arg_utils.py",
    ),
    _settings(
        "max_num_batched_tokens",
        r"max_num_batched_tokens \((?P<max_num_batched_tokens>NUM)\) exceeds max_num_seqs\s?\* max_model_len",
        source="config/scheduler.py (config.py to 0.10.1), from 0.9",
    ),
    _settings(
        "max_num_scheduled_tokens is set to ",
        r"max_num_scheduled_tokens is set to (?P<max_num_scheduled_tokens>NUM) based on the speculative",
        source="config/vllm.py, from 0.20",
    ),
    _settings(
        "Overriding max_num_active_seqs from ",
        r"Overriding max_num_active_seqs from NUM to (?P<max_num_active_requests>NUM)",
        source="config/vllm.py, from 0.33",
    ),
    _settings(
        "draft model max",
        r"Overriding draft model (?:max_position_embeddings|max model len) from NUM to (?:the target model's "
        r"max_model_len \()?(?P<draft_max_model_len>NUM)",
        source="config/speculative.py, from 0.9",
    ),
    _settings("reducing max_model_len to ", r"reducing max_model_len to (?P<max_model_len>NUM)", source="config/vllm.py, from 0.33"),
    _settings("Using V2 Model Runner", r"Using V2 Model Runner", source="v1/worker/gpu_worker.py, from 0.16", model_runner="v2"),
    _settings(
        "using the V1 model runner instead",
        r"using the V1 model runner instead",
        source="config/vllm.py, from 0.25",
        model_runner="v1",
    ),
    _settings(
        " attention backend",
        r"Using (?:AttentionBackendEnum\.)?(?P<attention_backend>[A-Za-z0-9_ .-]{2,40}?) attention backend(?! for| on)",
        source="platforms/cuda.py, from 0.12",
    ),
    _settings(
        "Using AttentionBackendEnum.",
        r"Using AttentionBackendEnum\.(?P<attention_backend>[A-Z0-9_]{2,40}) backend",
        source="platforms/cuda.py, from 0.11.1",
    ),
    _settings(
        " backend",
        r"Using (?P<attention_backend>(?:ROCm)?Flash ?Attention|Flash Attention MLA|Flash[Ii]nfer(?: MLA)?|XFormers|Xformers|"
        r"Torch SDPA|Triton(?: MLA| Attention)?|FlashMLA|CUTLASS MLA|AITER MLA|Cutlass MLA|CPU MLA|Pallas|"
        r"BlocksparseFlashAttention|FlexAttention)(?: [A-Za-z]{1,12})? backend(?: on V[01] engine)?\.?$",
        source="attention/selector.py and platforms, to 0.11",
    ),
    _settings(
        "kv cache block size to ",
        r"(?:Setting|Forcing) kv cache block size to (?P<block_size>NUM) for (?P<attention_backend>[A-Za-z0-9_]{2,40})",
        source="platforms/cuda.py to 0.17 (forcing), platforms/interface.py from 0.18 (setting)",
    ),
    _settings(
        "Setting attention block size to ",
        r"Setting attention block size to (?P<block_size>NUM) tokens",
        source="model_executor/models/config.py 0.10-0.19, platforms/interface.py and platforms/xpu.py from 0.20",
    ),
    _settings(
        "Padding mamba page size by ",
        r"Padding mamba page size by (?P<mamba_page_padding_percent>NUM)%",
        source="model_executor/models/config.py 0.10-0.19, platforms/interface.py from 0.20",
    ),
    _settings(
        "mamba_page_size_padded from ",
        r"mamba_page_size_padded from NUM to (?P<mamba_page_size_padded_bytes>NUM) bytes",
        source="platforms/xpu.py, from 0.33",
    ),
    _settings(
        "overriding currently set ",
        r"optimal block size is (?P<block_size>NUM), overriding currently set",
        source="platforms/openvino.py, to 0.8.0",
    ),
    _settings(
        "for hidden-state cache layer ",
        r"Using block size (?P<hidden_state_block_size>NUM) for hidden-state cache layer",
        source="v1/core/kv_cache_utils.py, from 0.29",
    ),
    _settings(
        "Using block size ",
        r"Using block size (?P<draft_block_size>NUM) for drafting layers",
        source="v1/spec_decode/eagle.py, llm_base_proposer.py, from 0.18, debug",
    ),
    _settings(
        "KV cache layout",
        r"(?:Using|Setting KV cache layout to|Using KV cache layout|Detected kv cache layout|Setting KV cache layout as) "
        r"(?:KV cache layout )?(?P<kv_cache_layout>[A-Z]{2,8})\b",
        source="v1/attention/backends/utils.py, from 0.9.2; v1/attention/selector.py 0.11.1-0.27",
    ),
    _settings(
        "KV cache format",
        r"Using (?:DeepSeek's )?(?P<kv_cache_format>[a-z0-9_]{2,40}) KV cache format",
        source="model_executor/layers/attention/mla_attention.py, from 0.24",
    ),
    _settings(
        " data type to store kv cache",
        r"Using (?P<kv_cache_dtype>[a-z0-9_]{2,40}) data type to store kv cache",
        source="config/cache.py (config.py to 0.10.1)",
    ),
    _settings(
        "Asynchronous scheduling is ",
        r"Asynchronous scheduling is (?P<async_scheduling>enabled|disabled)",
        source="config/vllm.py, 0.14-0.26",
    ),
    _settings(
        "hybrid kv cache manager",
        r"Turning off hybrid kv cache manager",
        source="config/vllm.py, from 0.9",
        hybrid_kv_cache_manager=False,
    ),
    _settings(
        "Hybrid KV cache manager is disabled",
        r"Hybrid KV cache manager is disabled",
        source="v1/core/kv_cache_utils.py, from 0.9",
        hybrid_kv_cache_manager=False,
    ),
    _settings(
        "cudagraph_mode",
        r"(?:Overriding cudagraph_mode (?:from \S{1,40} )?to |Setting cudagraph_mode to )(?P<cudagraph_mode>[A-Z_]{2,30})",
        source="config/vllm.py, config/compilation.py, from 0.11",
    ),
    _settings(
        "Cudagraph mode ",
        r"Cudagraph mode \S{1,60} .{1,160}?Overriding to (?:CUDAGraphMode\.)?(?P<cudagraph_mode>[A-Z_]{2,30})",
        source="config/vllm.py, config/compilation.py, from 0.12",
    ),
    _settings(
        "udagraph is disabled under eager mode",
        r"Cudagraph is disabled under eager mode",
        source="config/vllm.py, from 0.12",
        cudagraph_mode="NONE",
    ),
    _settings(
        "Truncating max_cudagraph_capture_size to ",
        r"Truncating max_cudagraph_capture_size to (?P<max_cudagraph_capture_size>NUM)",
        source="config/vllm.py, from 0.11.1",
    ),
    _settings(
        "Capping cudagraph capture sizes from max ",
        r"Capping cudagraph capture sizes from max NUM to (?P<max_cudagraph_capture_size>NUM) to fit Mamba cache blocks "
        r"\((?P<state_blocks>NUM) blocks",
        source="config/compilation.py, 0.17-0.18",
    ),
    _settings(
        "Using sleep-mode backend: ",
        r"Using sleep-mode backend: (?P<sleep_mode_backend>\S{1,60})",
        source="device_allocator/sleep_mode_backend.py, from 0.25",
    ),
    _settings("Offloader set to ", r"Offloader set to (?P<offloader>\S{1,60})", source="model_executor/offloader/base.py, from 0.18"),
    _settings(
        "embedding weights with the draft model",
        r"Sharing target model embedding weights with the draft model",
        source="v1/spec_decode/eagle.py, llm_base_proposer.py, from 0.11",
        draft_shares_embedding=True,
    ),
    _settings(
        "lm_head weights with the draft model",
        r"Sharing target model lm_head weights with the draft model",
        source="v1/spec_decode/eagle.py, llm_base_proposer.py, from 0.11",
        draft_shares_lm_head=True,
    ),
)  # fmt: skip
