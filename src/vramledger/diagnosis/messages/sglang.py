"""Messages of SGLang, 0.1.13 to 0.5.23, and of the libraries whose pools it uses."""

from __future__ import annotations

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import part, wording

STATIC_SHARE = MessageKind(
    name="sglang-static-share",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the static share is too small for the weights and any KV at all",
    source="sglang srt/model_executor/pool_configurator.py (model_runner.py before), 0.1 on",
)
TOKEN_LIMIT = MessageKind(
    name="sglang-token-limit",
    domain=Domain.DEVICE,
    standing=Standing.WARNING,
    meaning="fewer tokens fit than were asked for; a number below 1 means that the weights alone are too large",
    source="sglang srt/mem_cache/kv_cache_configurator.py (model_runner.py before), 0.2 on",
)
UNBALANCED = MessageKind(
    name="sglang-unbalanced",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the devices of one instance have unlike free memory: another process holds part of one",
    source="sglang srt/distributed/bootstrap.py (model_runner.py before), 0.1 on; sizes in GiB",
)
GRAPHS = MessageKind(
    name="sglang-graph-capture",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="capturing graphs failed, for lack of memory only where the error on the line says so",
    source="sglang srt/model_executor/cuda_graph_runner.py, 0.2 on",
    proves_memory=False,
)
POOL = MessageKind(
    name="sglang-pool",
    domain=Domain.KV_POOL,
    standing=Standing.CAUSE,
    meaning="the pool has too few tokens, or pages, for a step that was already scheduled",
    source="sglang srt/mem_cache/allocation.py (managers/schedule_batch.py before), 0.1 on; sglang-jax",
)
HOST_CACHE = MessageKind(
    name="sglang-host-cache",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="the host has less memory free than the second level of the cache is to have",
    source="sglang srt/mem_cache/pool_host (memory_pool_host.py before), 0.4.3 on; sizes in 10^9 bytes",
)
STATE_POOL = MessageKind(
    name="sglang-state-pool",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="nothing is left for the states of recurrent layers, or too little for one request",
    source="sglang srt/mem_cache/kv_cache_configurator.py, 0.5.14 on",
)
WINDOW_POOL = MessageKind(
    name="sglang-window-pool",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the pool of the layers with a window leaves nothing for the pool of the others",
    source="sglang srt/model_executor/pool_configurator.py, 0.5.14 on; GB is GiB",
)
STATE_SLOTS = MessageKind(
    name="sglang-state-slots",
    domain=Domain.REQUEST_SLOTS,
    standing=Standing.CAUSE,
    meaning="a request found no slot for its recurrent state",
    source="sglang srt/mem_cache/memory_pool.py, 0.5.4 on",
)
ABORTED = MessageKind(
    name="sglang-aborted",
    domain=Domain.KV_POOL,
    standing=Standing.WARNING,
    meaning="the only request left did not fit the pool and was ended",
    source="sglang srt/managers/schedule_batch.py, 0.5.10 on",
)
SHORT_POOL = MessageKind(
    name="sglang-pool-below-context",
    domain=Domain.KV_POOL,
    standing=Standing.WARNING,
    meaning="the pool holds fewer tokens than one request of the full context length has",
    source="sglang srt/managers/tp_worker.py, 0.5.23",
)
MEDIA_RETRY = MessageKind(
    name="sglang-media-retry",
    domain=Domain.DEVICE,
    standing=Standing.WARNING,
    meaning="pictures or sounds did not fit the device while they were prepared; it is done on the host",
    source="sglang srt/multimodal/processors/base_processor.py, 0.5.23",
)
WARMUP_REDUCED = MessageKind(
    name="sglang-warmup-reduced",
    domain=Domain.DEVICE,
    standing=Standing.BENIGN,
    meaning="a kernel is warmed up on fewer tokens, because all of them would not fit",
    source="sglang srt/layers/deep_gemm_wrapper/compile_utils.py, 0.5.10 on",
)
RETRACTED = MessageKind(
    name="sglang-retraction",
    domain=Domain.KV_POOL,
    standing=Standing.WARNING,
    meaning="running requests gave their KV back because the pool was full; they are computed again",
    source="sglang srt/managers/scheduler.py, 0.2 on",
)
REQUEST_SLOTS = MessageKind(
    name="sglang-request-slots",
    domain=Domain.REQUEST_SLOTS,
    standing=Standing.CAUSE,
    meaning="a batch wants more request slots than are left; bytes and tokens do not matter",
    source="sglang srt/mem_cache/allocation.py (managers/schedule_batch.py before), 0.3 on",
)
POOL_LEAK = MessageKind(
    name="sglang-pool-leak",
    domain=Domain.KV_POOL,
    standing=Standing.CAUSE,
    meaning="at rest the pool's books do not add up: tokens are lost, or counted twice where the sum is too large",
    source="sglang srt/managers/scheduler_components/invariant_checker.py (scheduler.py before), 0.4 on",
)
WORKSPACE = MessageKind(
    name="flashinfer-workspace",
    domain=Domain.WORKSPACE,
    standing=Standing.CAUSE,
    meaning="the attention workspace, whose size is set beforehand, is too small for this batch",
    source="flashinfer include/flashinfer/allocator.h",
)
SAVER = MessageKind(
    name="memory-saver-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="memory that was released could not be had again",
    source="torch_memory_saver csrc, all releases",
)
CHILD_FAILED = MessageKind(
    name="sglang-child-failed",
    domain=Domain.NONE,
    standing=Standing.CONSEQUENCE,
    meaning="a process of the server ended; the reason stands above, or below where a traceback follows",
    source="sglang srt/entrypoints/engine.py, srt/managers, 0.4 on",
    proves_memory=False,
)
MAY_RETRY = MessageKind(
    name="memory-saver-retry",
    domain=Domain.DEVICE,
    standing=Standing.BENIGN,
    meaning="a mapping failed; the allocator empties its cache and tries again",
    source="torch_memory_saver csrc",
)

KINDS = (
    STATIC_SHARE,
    TOKEN_LIMIT,
    UNBALANCED,
    GRAPHS,
    POOL,
    HOST_CACHE,
    STATE_POOL,
    WINDOW_POOL,
    STATE_SLOTS,
    ABORTED,
    SHORT_POOL,
    MEDIA_RETRY,
    WARMUP_REDUCED,
    RETRACTED,
    REQUEST_SLOTS,
    POOL_LEAK,
    WORKSPACE,
    SAVER,
    CHILD_FAILED,
    MAY_RETRY,
)

_POOL_PARTS = (
    r"Try to allocate (?P<requested_tokens>INT) tokens",
    r"(?<!SWA )[Aa]va(?:il|li)able (?:full )?tokens: (?P<available_tokens>INT)",
    r"(?<!swa_)available_size(?:\(\))?=(?P<free_tokens>INT)",
    r"(?<!swa_)(?<!component_)evictable_size_?(?:\(\))?=(?P<evictable_tokens>INT)",
    r"(?:SWA available|Available swa) tokens: (?P<swa_available_tokens>INT)",
    r"swa_available(?:_size)?=(?P<swa_free_tokens>INT)",
    r"swa_evictable(?:_size)?=(?P<swa_evictable_tokens>INT)",
    r"Available swa: (?P<swa_available_tokens>INT) \(available_size=(?P<swa_free_tokens>INT)",
    r"Available swa: INT \(available_size=INT \+ component_evictable_size_=(?P<swa_evictable_tokens>INT)",
    r"Available mamba: (?P<available_states_count>INT) \(available_size=(?P<free_states_count>INT)",
    r"Available mamba: INT \(available_size=INT \+ component_evictable_size_=(?P<evictable_states_count>INT)",
    r"Full LRU list evictable size: (?P<listed_evictable_tokens>INT)",
    r"SWA LRU list evictable size: (?P<swa_listed_evictable_tokens>INT)",
)
_RETRACTED_PARTS = (
    r"#retracted_reqs: (?P<retracted_requests>INT)",
    r"#new_tokens?_gained: (?P<gained_tokens>INT)",
    r"#new_token_ratio: (?P<token_before_ratio>NUM) -> (?P<token_after_ratio>NUM)",
    r"#mamba_num_gained: (?P<gained_states_count>INT)",
)

PATTERNS = (
    wording(
        RETRACTED,
        "Decode out of memory happened",
        r"Decode out of memory happened",
        *_RETRACTED_PARTS,
        stage="decode",
    ),
    wording(RETRACTED, "KV cache pool is full", r"KV cache pool is full", *_RETRACTED_PARTS, stage="decode"),
    wording(
        POOL, "Prefill out of memory", r"Prefill out of memory", *_POOL_PARTS, following=6, stage="prefill"
    ),
    wording(POOL, "Decode out of memory", r"Decode out of memory", *_POOL_PARTS, following=6, stage="decode"),
    wording(
        POOL,
        "Try to lower your batch size",
        r"[Oo]ut of memory\. ?Try to lower your batch size",
        *_POOL_PARTS,
        following=6,
    ),
    wording(
        REQUEST_SLOTS,
        "alloc_req_slots runs out of memory",
        r"alloc_req_slots runs out of memory",
        r"available_size\(\)=(?P<available_requests>INT)",
        r"num_reqs=(?P<requested_requests>INT)",
    ),
    wording(
        REQUEST_SLOTS,
        "smaller number for `--max-running-requests`",
        r"Out of memory\. Please set a smaller number",
    ),
    wording(
        POOL_LEAK,
        "memory leak detected!",
        r"(?P<pool>[A-Za-z_]{2,60}) memory leak detected!",
        r"memory leak detected! ?(?P<books>.{1,3000})",
        following=4,
        stage="idle-check",
    ),
    wording(
        POOL_LEAK,
        "Mem Leak Detected!",
        r"Mem Leak Detected! ?(?P<books>.{1,3000})",
    ),
    wording(
        POOL_LEAK,
        "ool leak detected!",
        r"(?P<pool>KV cache|Memory) pool leak detected!",
        part(
            r"(?P<books>(?:available_size|available req slots)=.{1,400}?)(?= (?:KV cache|Memory) pool|$)",
            anywhere=True,
        ),
        following=1,
        stage="idle-check",
    ),
    wording(
        HOST_CACHE,
        "Not enough host memory",
        r"Not enough host memory",
        part(r"Requesting (?P<requested_gb>NUM) GB", stage="host-load"),
        r"only have (?P<free_gb>NUM) GB free",
    ),
    wording(
        STATE_POOL,
        "state cache",
        r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache|"
        r"Hybrid \(mamba/linear-attention\) state cache is too small",
        r"max_mamba_cache_size=(?P<states_count>INT)",
        r"total_rest_memory=(?P<available_gib>NUM) GB",
        r"mamba_cache_per_req=(?P<state_mib>NUM) MB",
        stage="kv-sizing",
    ),
    wording(
        WINDOW_POOL,
        "leaves no room for the full KV pool",
        r"SWA pool cap \((?P<window_tokens>INT) tokens",
        r"tokens, (?P<window_gib>NUM) Gi?B\)",
        r"within the available (?P<available_gib>NUM) Gi?B",
        stage="kv-sizing",
    ),
    wording(
        STATE_SLOTS,
        "Not enough space for mamba",
        r"Not enough space for mamba",
        r"available_size\(\)=(?P<available_requests>INT)",
        r"len\(reqs\)=(?P<requested_requests>INT)",
    ),
    wording(
        POOL,
        "KV cache is full! ",
        r"KV cache is full! (?:There is a )?[Bb]ug in memory estimation",
        r"\bavailable=(?P<free_tokens>INT)",
        r"\bevictable=(?P<evictable_tokens>INT)",
        r"\bprotected=(?P<protected_tokens>INT)",
        r"required_alloc=(?P<requested_tokens>INT)",
        r"page_size=(?P<page_tokens>INT)",
        stage="pd-transfer",
    ),
    wording(
        POOL,
        "Eviction insufficient: needed",
        r"Eviction insufficient: needed (?P<requested_tokens>INT) tokens",
        r"available (?P<available_tokens>INT) after evicting",
        r"evictable_size=(?P<evictable_tokens>INT)",
        r"protected_size=(?P<protected_tokens>INT)",
        r"page_size=(?P<page_tokens>INT)",
        stage="pd-transfer",
    ),
    wording(
        POOL,
        "Failed to retract any request",
        r"Failed to retract any request\. No space left",
        stage="decode",
    ),
    wording(
        ABORTED,
        "aborted last request",
        r"retract_decode: aborted last request (?P<request>\S{1,120})",
        stage="decode",
    ),
    wording(
        STATIC_SHARE, "Memory pool size is too small", r"Memory pool size is too small", stage="kv-sizing"
    ),
    wording(
        SHORT_POOL,
        "fewer than --context-length",
        r"KV pool holds (?P<kv_tokens>INT) tokens",
        r"--context-length (?P<context_len>INT)",
    ),
    wording(
        MEDIA_RETRY,
        "preprocessing ran out of GPU memory",
        r"Multimodal preprocessing ran out of GPU memory",
        stage="prefill",
    ),
    wording(
        WARMUP_REDUCED,
        "less than required memory",
        r"Available memory (?P<available_gib>NUM)GB is less than required memory (?P<requested_gib>NUM)GB for warmup",
        r"reducing max_m to (?P<rows_count>INT)",
    ),
    wording(
        STATIC_SHARE,
        "Please try to increase --mem-fraction-static",
        r"Not enought? memory\. Please try to increase --mem-fraction-static",
        r"mem_fraction_static=(?P<static_ratio>NUM)",
        stage="kv-sizing",
    ),
    wording(
        TOKEN_LIMIT,
        "is larger than the profiled value",
        r"max_total_tokens=(?P<requested_tokens>INT) is larger than the profiled value",
        r"profiled value (?P<available_tokens>INT)\b",
        stage="kv-sizing",
    ),
    wording(
        UNBALANCED,
        "The memory capacity is unbalanced",
        r"The memory capacity is unbalanced",
        r"(?:pre_model_load_memory|min_per_gpu_memory)=(?P<smallest_free_gib>NUM)",
        r"local_gpu_memory=(?P<free_gib>NUM)",
        stage="startup-check",
    ),
    wording(
        WORKSPACE,
        "in AlignedAllocator",
        r"Failed to allocate memory for (?P<buffer>[A-Za-z0-9_]{1,80}) with size",
        r"with size (?P<requested_bytes>INT)",
        r"alignment (?P<alignment_bytes>INT)",
    ),
    wording(MAY_RETRY, "may not be an issue", r"CUDA_ERROR_OUT_OF_MEMORY \(may not be an issue"),
    wording(
        SAVER,
        "torch_memory_saver",
        r"(?:CUresult|cudaError) error(?:: 2 \(out of memory\)| {1,3}result=2\b)",
        r"func=(?P<function>[a-z_]{3,40})",
        stage="wake",
    ),
    wording(SAVER, "CUresult error: 2", r"CUresult error: 2\b", r"func=(?P<function>[a-z_]{3,40})"),
    wording(
        GRAPHS,
        "graph failed: ",
        r"Capture [A-Za-z -]{0,40}(?:cuda|CUDA|CPU) graph failed: (?P<error>.{1,200})",
        stage="graph-capture",
    ),
    wording(
        CHILD_FAILED,
        " hit an exception",
        r"(?:Scheduler|TpModelWorkerClient|TokenizerManager|DetokenizerManager|DataParallelController) hit an exception",
    ),
    wording(CHILD_FAILED, "It usually means", r"usually means (?:the|one) child failed"),
    wording(CHILD_FAILED, "scheduler is dead", r"Rank [0-9]{1,5} scheduler is dead"),
    wording(
        CHILD_FAILED,
        "see the error messages above",
        r"Initialization failed\. Please see the error messages above",
    ),
)
