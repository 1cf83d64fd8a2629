"""Messages of vLLM, 0.1 to 0.33."""

from __future__ import annotations

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import part, wording

STARTUP_CHECK = MessageKind(
    name="vllm-startup-check",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="less of the device is free at the start than the share that vLLM is to use",
    source="vllm v1/worker/utils.py (gpu_worker.py before), 0.9.2 on",
)
EXTERNAL_WEIGHTS = MessageKind(
    name="vllm-external-weights",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="weights that another process holds for vLLM are more than the share that vLLM is to use",
    source="vllm v1/worker/utils.py, 0.32 on",
)
LOAD_REFUSAL = MessageKind(
    name="vllm-load-failed",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the device ran out while weights were made or loaded",
    source="vllm v1/worker/gpu_model_runner.py, 0.13 on",
)
KV_NONE = MessageKind(
    name="vllm-kv-none",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="weights and the profiled peak leave nothing of vLLM's share for the KV cache",
    source="vllm v1/core/kv_cache_planning.py (kv_cache_utils.py, worker/worker.py before), 0.1 on",
)
KV_CHECK = MessageKind(
    name="vllm-kv-check",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="what is left for the KV cache does not hold one request of the maximum length",
    source="vllm v1/core/kv_cache_planning.py (kv_cache_utils.py before), 0.7.3 on; GB is GiB",
)
KV_LENGTH = MessageKind(
    name="vllm-kv-length",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the KV cache holds fewer tokens than one request of the maximum length has",
    source="vllm worker/worker.py of the V0 engine, to 0.10",
)
WARMUP_ROWS = MessageKind(
    name="vllm-warmup-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="sampler or pooler ran out of memory in a dummy step of as many requests as may run at once",
    source="vllm v1/worker/gpu_model_runner.py, 0.8.0 on",
)
PROFILING_MOVED = MessageKind(
    name="vllm-profiling-moved",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="free memory grew while vLLM measured: another process released memory, and the measurement is void",
    source="vllm v1/worker/gpu_worker.py (worker/worker.py before), 0.4 on",
)
MAMBA_BLOCKS = MessageKind(
    name="vllm-mamba-blocks",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="there are fewer blocks for recurrent states than requests that may run at once",
    source="vllm config/compilation.py, 0.23 on",
)
HOST_CHECK = MessageKind(
    name="vllm-host-check",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="less host memory is free than vLLM's CPU backend, or its swap space, is to use",
    source="vllm v1/worker/cpu_worker.py, 0.20 on; config.py, swap space, to 0.1x",
)
PROFILING_GREW = MessageKind(
    name="vllm-profiling-grew",
    domain=Domain.DEVICE,
    standing=Standing.WARNING,
    meaning="free memory grew while vLLM measured; the pool is sized from what torch holds in its place",
    source="vllm v1/worker/gpu_worker.py, 0.30 on",
)
REFUSED_REQUEST = MessageKind(
    name="vllm-request-refused",
    domain=Domain.KV_POOL,
    standing=Standing.WARNING,
    meaning="a request that the whole pool cannot hold was ended without an answer",
    source="vllm core/scheduler.py of the V0 engine, to 0.10",
)
MEDIA_POOL = MessageKind(
    name="vllm-media-pool",
    domain=Domain.WORKSPACE,
    standing=Standing.CAUSE,
    meaning="a request's pictures or sounds want more than the pool that was set aside for decoding them",
    source="vllm multimodal/gpu_ipc_memory.py, 0.27 on",
)
TRANSFER_FULL = MessageKind(
    name="vllm-transfer-full",
    domain=Domain.KV_POOL,
    standing=Standing.WARNING,
    meaning="the buffer for KV on its way between instances is full",
    source="vllm distributed/kv_transfer/kv_connector/v1/p2p, 0.9.2 on",
)
PREEMPTED = MessageKind(
    name="vllm-preemption",
    domain=Domain.KV_POOL,
    standing=Standing.WARNING,
    meaning="a running request gave its KV blocks back because the pool was full; it is computed again",
    source="vllm core/scheduler.py of the V0 engine, to 0.10; v1/metrics/loggers.py, 0.11.2 on",
)
CUMEM = MessageKind(
    name="vllm-cumem-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="memory of sleep mode could not be mapped, most often on waking up",
    source="vllm csrc/cumem_allocator.cpp, 0.7 on",
)
SLEPT = MessageKind(
    name="vllm-sleep",
    domain=Domain.DEVICE,
    standing=Standing.EVIDENCE,
    meaning="what sleep gave back and what is still held",
    source="vllm v1/worker/gpu_worker.py, 0.7 on",
)
WOKE = MessageKind(
    name="vllm-wake",
    domain=Domain.DEVICE,
    standing=Standing.EVIDENCE,
    meaning="the engine woke up",
    source="vllm v1/executor/abstract.py, 0.8 on",
)
ENGINE_DEAD = MessageKind(
    name="vllm-engine-dead",
    domain=Domain.NONE,
    standing=Standing.CONSEQUENCE,
    meaning="the engine process ended or did not start; the reason stands above",
    source="vllm v1/engine, engine/multiprocessing, entrypoints/launcher.py, 0.6 on",
    proves_memory=False,
)

KINDS = (
    STARTUP_CHECK,
    EXTERNAL_WEIGHTS,
    LOAD_REFUSAL,
    KV_NONE,
    KV_CHECK,
    KV_LENGTH,
    WARMUP_ROWS,
    PROFILING_MOVED,
    MAMBA_BLOCKS,
    HOST_CHECK,
    PROFILING_GREW,
    REFUSED_REQUEST,
    MEDIA_POOL,
    TRANSFER_FULL,
    PREEMPTED,
    CUMEM,
    SLEPT,
    WOKE,
    ENGINE_DEAD,
)

_DEVICE = r"on device [a-z]{2,10}:(?P<device_id>[0-9]{1,4})\b"
_SHARE = r"desired GPU memory utilization \((?P<utilization_ratio>NUM)"
_SHARE_BYTES = r"desired GPU memory utilization \([0-9.]{1,24}, (?P<requested_gib>NUM) GiB"

PATTERNS = (
    wording(
        STARTUP_CHECK,
        "Free memory on device",
        r"Free memory on device(?: [a-z]{2,10}(?::[0-9]{1,4})?)? \((?!.{0,60}on startup\. Desired)",
        _DEVICE,
        r"\((?P<free_gib>NUM)/(?P<total_gib>NUM) GiB\)",
        _SHARE,
        _SHARE_BYTES,
        r"process's weights \((?P<utilization_ratio>NUM), [0-9.]{1,24} GiB",
        r"process's weights \([0-9.]{1,24}, (?P<requested_gib>NUM) GiB",
        following=3,
        until="Decrease GPU",
        stage="startup-check",
    ),
    wording(
        EXTERNAL_WEIGHTS,
        "Externally held weights on device",
        r"Externally held weights on device",
        _DEVICE,
        r"\((?P<weights_gib>NUM)/(?P<total_gib>NUM) GiB\)",
        _SHARE,
        _SHARE_BYTES,
        following=3,
        until="Increase GPU",
        stage="startup-check",
    ),
    wording(
        HOST_CHECK,
        "Available memory on node",
        r"Available memory on node (?P<node_id>INT)? ?\(",
        r"\((?P<free_gib>NUM)/(?P<total_gib>NUM) GiB\)",
        r"desired CPU memory utilization \((?P<utilization_ratio>NUM)",
        r"desired CPU memory utilization \([0-9.]{1,24}, (?P<requested_gib>NUM) GiB",
        r"requested memory for kv \((?P<requested_gib>NUM)(?:/[0-9.]{1,24})? GiB",
        stage="startup-check",
    ),
    wording(
        HOST_CHECK,
        "Too large swap space",
        r"Too large swap space\.",
        r"(?P<requested_gib>NUM) GiB out of the",
        r"out of the (?P<total_gib>NUM) GiB total CPU memory",
        stage="startup-check",
    ),
    wording(
        PROFILING_GREW,
        "Free memory grew by",
        r"Free memory grew by (?P<grown_gib>NUM) GiB during profiling",
        r"initial (?P<initial_free_gib>NUM) GiB",
        r"current (?P<free_gib>NUM) GiB",
        stage="profile-run",
    ),
    wording(
        REFUSED_REQUEST,
        "not enough kv cache blocks",
        r"Failing the request (?P<request>\S{1,120}) because there's not enough kv cache blocks",
        stage="prefill",
    ),
    wording(
        MEDIA_POOL,
        "exceeds the total pool size",
        r"GPU decode requested (?P<requested_bytes>INT) bytes",
        r"total pool size of (?P<total_bytes>INT) bytes",
        stage="prefill",
    ),
    wording(
        TRANSFER_FULL, "Out Of Memory", r"(?:Send|Recv) Tensor, (?:Peer )?Out Of Memory", stage="pd-transfer"
    ),
    wording(
        KV_NONE,
        "Cannot auto-fit max_model_len",
        r"Cannot auto-fit max_model_len",
        stage="kv-sizing",
    ),
    wording(
        LOAD_REFUSAL,
        "too large for the current device's HBM memory",
        r"Unable to load model",
        stage="weight-load",
    ),
    wording(
        KV_CHECK,
        "To serve at least one request with the model",
        r"To serve at least one request with the model",
        r"max seq len \((?P<max_model_len>INT)\)",
        r"\((?P<needed_gib>NUM) Gi?B KV cache is needed",
        r"available KV cache memory \((?P<available_gib>NUM) Gi?B\)",
        r"estimated maximum model length is (?P<estimated_max_model_len>INT)",
        following=4,
        until=r"Try increasing|(?:\.\.\.|…)$",
        stage="kv-sizing",
    ),
    wording(
        KV_NONE,
        "No available memory for the cache blocks",
        r"No available memory for the cache blocks",
        stage="kv-sizing",
    ),
    wording(
        KV_LENGTH,
        "is larger than the maximum number of tokens",
        r"max seq len \((?P<max_model_len>INT)\)",
        r"stored in (?:the )?KV cache \((?P<kv_tokens>INT)\)",
        following=3,
        until="Try increasing",
        stage="kv-sizing",
    ),
    wording(
        WARMUP_ROWS,
        "out of memory occurred when warming up",
        r"out of memory occurred when warming up (?P<step>sampler|pooler)?",
        r"with (?P<rows_count>INT) dummy requests",
        r"\(task='?(?P<task>[a-z_&]{2,30})",
        following=2,
        until="dummy requests",
        stage="sampler-warmup",
    ),
    wording(
        PROFILING_MOVED,
        "Error in memory profiling",
        r"Error in memory profiling",
        r"Initial free memory (?P<initial_free_gib>NUM) GiB",
        r"current free memory (?P<free_gib>NUM) GiB",
        r"Initial free memory (?P<initial_free_bytes>INT),",
        r"current free memory (?P<free_bytes>INT)\. ",
        following=3,
        until="This happens",
        stage="profile-run",
    ),
    wording(
        MAMBA_BLOCKS,
        "exceeds available Mamba cache",
        r"max_num_seqs \((?P<max_num_seqs_count>INT)\)",
        r"Mamba cache blocks \((?P<available_blocks>INT)\)",
        stage="kv-sizing",
    ),
    wording(
        PREEMPTED,
        "is preempted by",
        r"Sequence group (?P<request>\S{1,120}) is preempted by (?:PreemptionMode\.)?(?P<mode>[A-Z]{4,10})?",
        r"total_num_cumulative_preemption=(?P<preemptions_count>INT)",
        stage="decode",
    ),
    wording(
        CUMEM,
        "Error: out of memory at",
        r"(?:CUDA|HIP) Error: out of memory at (?P<file>[^\s:]{1,300}:[0-9]{1,6})",
        part(r"wake_up", anywhere=True, stage="wake"),
    ),
    wording(
        SLEPT,
        "Sleep mode freed",
        r"Sleep mode freed (?P<freed_gib>NUM) GiB memory",
        r"(?P<used_gib>NUM) GiB memory is still in use",
        stage="sleep",
    ),
    wording(WOKE, "to wake up tags", r"It took (?P<took_s>NUM) seconds to wake up tags", stage="wake"),
    wording(
        LOAD_REFUSAL,
        "Failed to load model - not enough GPU memory",
        r"Failed to load model - not enough GPU memory",
        stage="weight-load",
    ),
    # With an exit code of -9 the line says more than that: see the host's messages.
    wording(
        ENGINE_DEAD,
        "died unexpectedly",
        r"(?:[Ww]orker proc|Engine core proc|RayWorkerProc) .{1,120}died unexpectedly",
        unless=r"exit code: -9",
    ),
    *(
        wording(ENGINE_DEAD, text, text.replace(".", r"\."))
        for text in (
            "EngineCore encountered an issue",
            "EngineCore encountered a fatal error",
            "EngineCore failed to start",
            "EngineDeadError",
            "Engine core initialization failed",
            "Engine process failed to start",
            "EngineCoreProc failed to start",
            "WorkerProc initialization failed",
            "WorkerProc failed to start",
            "WorkerProc hit an exception",
            "Got fatal signal from worker processes",
            "RuntimeError: Executor failed",
            "MQLLMEngine is already dead",
            "AsyncEngineDeadError",
            "AsyncLLMEngine has failed",
            "Background loop has errored",
        )
    ),
)
