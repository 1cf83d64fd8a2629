"""vLLM's log lines about what was started: version, settings, model, ranks, warm-up, readiness, exit.

Wordings were read in the logger calls of 0.6.6 to 0.33.0; older ones are those of published logs. A source without
releases is worded alike in all.
"""

from __future__ import annotations

from functools import partial

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

_settings = partial(line_pattern, Event.SETTINGS)
_warmup = partial(line_pattern, Event.WARMUP)
_ready = partial(line_pattern, Event.READY)
_exit = partial(line_pattern, Event.EXIT)

IDENTITY = (
    _settings(
        " LLM engine",
        r"Initializing an? (?:(?P<core>V[01]) )?LLM engine(?: \(v(?P<engine_version>[^)\s]{1,100})\))? with config: "
        r"(?P<config>.*)",
        source="engine/llm_engine.py to 0.10 (named V0 from 0.7), v1/engine/core.py from 0.6.6 (named V1 from 0.7)",
    ),
    _settings(
        " LLM engine (v",
        r"\b(?P<core>V[01]) LLM engine \(v(?P<engine_version>[^)\s]{1,100})\) with config: (?P<config>.*)",
        source="logging_utils/dump_input.py, from 0.9, when a step fails",
        failing=True,
    ),
    _settings(
        "non-default args: ",
        r"non-default args: (?P<args>\{.*)",
        source="entrypoints/openai/cli_args.py 0.9-0.10.0, entrypoints/utils.py 0.10.1-0.22, entrypoints/serve/utils/"
        "api_utils.py 0.23-0.31, entrypoints/common/startup.py from 0.33",
    ),
    _settings(
        "args: Namespace(",
        r"args: (?P<args>Namespace\(.*)",
        source="entrypoints/openai/api_server.py, entrypoints/api_server.py, to 0.8",
    ),
    line_pattern(
        Event.VERSION,
        "version ",
        r"vLLM (?:API server|server|batch processing API) version (?P<engine_version>[^\s,]{1,100})"
        r"(?:, serving model (?P<model>[^\s]{1,300}))?",
        source="entrypoints/openai/api_server.py, entrypoints/utils.py, entrypoints/common/startup.py",
    ),
    line_pattern(
        Event.VERSION,
        "█  version ",
        r"█ {1,8}version (?P<engine_version>[^\s]{1,100})",
        source="entrypoints/utils.py (the banner), from 0.12",
    ),
    line_pattern(
        Event.MODEL,
        "█  model ",
        r"█ {1,8}model {1,8}(?P<model>[^\s]{1,300})",
        source="entrypoints/utils.py (the banner), from 0.12",
    ),
    line_pattern(
        Event.MODEL,
        "Resolved architecture: ",
        r"Resolved architecture: (?P<architecture>[A-Za-z0-9_]{1,120})",
        source="config/model.py, from 0.10",
    ),
    line_pattern(
        Event.MODEL,
        "Using max model len ",
        r"Using max model len (?P<context_len>NUM)",
        source="config/model.py, from 0.9.2",
    ),
    line_pattern(
        Event.MODEL,
        "Auto-fit max_model_len: reduced",
        r"Auto-fit max_model_len: reduced from (?P<asked_len>NUM) to (?P<context_len>NUM) to fit in available "
        r"(?:GPU memory \((?P<kv_cache_gib>NUM) GiB|KV cache memory)",
        source="v1/core/kv_cache_utils.py 0.14-0.31, v1/core/kv_cache_planning.py from 0.33",
    ),
    line_pattern(
        Event.MODEL,
        "Auto-fit max_model_len: ",
        r"Auto-fit max_model_len: (?:full model context length|attention-free model, using derived max_model_len)"
        r"[ =](?P<context_len>NUM)",
        source="v1/core/kv_cache_utils.py 0.14-0.31, v1/core/kv_cache_planning.py from 0.33",
    ),
    line_pattern(
        Event.MODEL,
        "Updated max_model_len to ",
        r"Updated max_model_len to (?P<context_len>NUM)",
        source="v1/worker/gpu_worker.py, from 0.16, debug",
    ),
)

RANKS = (
    line_pattern(
        Event.RANK,
        " is assigned as DP rank ",
        r"rank (?P<rank_id>NUM) in world size (?P<world_size>NUM) is assigned as DP rank (?P<dp_rank_id>NUM), "
        r"PP rank (?P<pp_rank_id>NUM), (?:PCP rank NUM, )?TP rank (?P<tp_rank_id>NUM)"
        r"(?:, ETP rank [^,]{1,8})?(?:, EP rank (?:(?P<ep_rank_id>NUM)|N/A))?",
        source="distributed/parallel_state.py, from 0.8",
    ),
    line_pattern(
        Event.RANK,
        "distributed_init_method=",
        r"world_size=(?P<world_size>NUM) rank=(?P<rank_id>NUM) local_rank=(?P<local_rank_id>NUM) "
        r"distributed_init_method=",
        source="distributed/parallel_state.py, from 0.9; debug in older ones",
    ),
    line_pattern(
        Event.RANK,
        "[EP Rank ",
        r"\[EP Rank (?P<ep_rank_id>NUM)/(?P<ep_size>NUM)\] Expert parallelism is enabled\.[^/]{0,120}?[Ll]ocal/global "
        r"number of experts: (?P<local_experts_count>NUM)/(?P<experts_count>NUM)",
        source="model_executor/layers/fused_moe/layer.py, from 0.10",
    ),
    line_pattern(
        Event.RANK,
        "EP weight filter: ep_size=",
        r"EP weight filter: ep_size=(?P<ep_size>NUM), ep_rank=(?P<ep_rank_id>NUM), loading "
        r"(?P<local_experts_count>NUM)/(?P<experts_count>NUM) experts",
        source="model_executor/model_loader/default_loader.py, from 0.18",
    ),
)

CHOICES = (
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
        source="config/vllm.py, from 0.14",
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

PROGRESS = (
    line_pattern(
        Event.LOAD_BEGIN,
        "Starting to load model ",
        r"Starting to load model (?P<model>\S{1,300}?)\.\.\.",
        source="v1/worker/gpu_model_runner.py, worker/model_runner.py, v1/worker/cpu_model_runner.py",
    ),
    line_pattern(
        Event.LOAD_BEGIN,
        "Loading drafter model",
        r"Loading drafter model\.\.\.",
        source="v1/worker/gpu_model_runner.py from 0.8, v1/worker/cpu_model_runner.py",
        part="draft",
    ),
    _warmup(
        "Encoder cache will be initialized with a budget of ",
        r"Encoder cache will be initialized with a budget of (?P<encoder_budget_tokens>NUM) tokens, and profiled with "
        r"(?P<items_count>NUM) (?P<modality>[a-z_]{1,30}) items",
        source="v1/worker/gpu_model_runner.py, from 0.7",
        step="encoder profile",
    ),
    _warmup("Capturing cudagraphs for decoding", r"Capturing cudagraphs for decoding", source="worker/model_runner.py, V0", step="graphs"),
    _warmup(
        "Capturing CUDA graph",
        r"Capturing CUDA graph(?:s| shapes)(?: \((?P<shape>[^)]{1,60})\))?: {1,4}(?P<done_percent>\d{1,3})%\|[^|]{0,80}\| "
        r"{0,2}(?P<captured_count>NUM)/(?P<graphs_count>NUM)",
        source="v1/worker/gpu_model_runner.py, v1/worker/gpu/cudagraph_utils.py, worker/model_runner.py (progress bar)",
        step="graphs",
    ),
    _warmup(
        "Compile and warming up model for size ",
        r"Compile and warming up model for size (?P<shape>NUM)",
        source="v1/worker/gpu_worker.py, from 0.6.6",
        step="compile",
    ),
    _warmup("Warming up model for the compilation", r"Warming up model for the compilation", source="v1/worker/cpu_model_runner.py", step="begin"),
    _warmup("Warming up done.", r"Warming up done\.", source="v1/worker/cpu_model_runner.py", step="end"),
    _warmup(
        "Initial profiling/warmup run took ",
        r"Initial profiling/warmup run took (?P<elapsed_s>NUM) s",
        source="compilation/monitor.py, from 0.16",
        step="profile run",
    ),
    _warmup(
        "torch.compile takes ",
        r"torch\.compile takes (?P<elapsed_s>NUM) s in total",
        source="compilation/monitor.py",
        step="compile",
    ),
    _warmup(
        "KV blocks are available for ",
        r"only (?P<num_blocks>NUM) KV blocks are available for (?P<wanted_blocks>NUM) required warmup blocks",
        source="v1/worker/gpu/warmup.py, from 0.24",
        step="skipped",
    ),
    _warmup(
        "init engine (profile, create kv cache, warmup model) took ",
        r"init engine \(profile, create kv cache, warmup model\) took (?P<elapsed_s>NUM) s"
        r"(?:econds)?(?: \(compilation: (?P<compilation_s>NUM) s)?",
        source="engine/llm_engine.py, v1/engine/core.py",
        step="init engine",
    ),
    _ready("Application startup complete", r"Application startup complete", source="uvicorn"),
    _ready("Uvicorn running on ", r"Uvicorn running on (?P<address>\S{1,100})", source="uvicorn"),
    _ready("Server is ready to accept requests", r"Server is ready to accept requests", source="entrypoints/grpc_server.py, from 0.16"),
)  # fmt: skip

ENDING = (
    _exit(
        "died unexpectedly",
        r"(?:Worker proc|Engine core proc) (?P<exited>\S{1,80}) died unexpectedly(?: \(exit code: (?P<exit_code>-?\d{1,10})\))?",
        source="v1/executor/multiproc_executor.py from 0.9 (the code from 0.33), v1/engine/core_client.py",
    ),
    _exit(
        "died unexpectedly",
        r"RayWorkerProc rank=(?P<exited>[\[\], 0-9]{1,200}) died unexpectedly",
        source="v1/executor/ray_executor_v2.py, from 0.20",
    ),
    _exit(
        " died, exit code: ",
        r"Worker (?P<exited>\S{1,80}) pid (?P<pid_id>NUM) died, exit code: (?P<exit_code>-?\d{1,10})",
        source="executor/multiproc_worker_utils.py, V0",
    ),
    _exit(
        "EngineCore: trigger received signal=",
        r"EngineCore: trigger received signal=(?P<signal>[A-Z0-9]{2,20})",
        source="v1/engine/core.py, from 0.30",
    ),
    _exit("API server: shutdown triggered", r"API server: shutdown triggered", source="entrypoints/launcher.py, from 0.30"),
    _exit("Shutting down FastAPI HTTP server", r"Shutting down FastAPI HTTP server", source="entrypoints/launcher.py, to 0.29"),
    _exit("DPSupervisor received ", r"DPSupervisor received (?P<signal>[A-Z0-9]{2,20}), shutting down", source="entrypoints/dp_supervisor.py"),
    _exit("WorkerProc was terminated", r"WorkerProc was terminated", source="v1/executor/multiproc_executor.py"),
    _exit("Finished server process [", r"Finished server process \[(?P<pid_id>NUM)\]", source="uvicorn"),
)  # fmt: skip

STARTUP_PATTERNS = IDENTITY + RANKS + CHOICES + PROGRESS + ENDING
