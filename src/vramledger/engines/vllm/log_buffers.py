"""vLLM's log lines about single buffers on the device and the host, and about sleep."""

from __future__ import annotations

from functools import partial

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

_buffer = partial(line_pattern, Event.BUFFER)

BUFFERS = (
    _buffer(
        "[WORKSPACE DEBUG] Resized workspace from ",
        r"Resized workspace from '(?P<user>[^']{1,200})': (?P<before_mib>NUM) MB -> (?P<size_mib>NUM) MB",
        source="v1/worker/workspace.py, from 0.16, with VLLM_DEBUG_WORKSPACE",
        buffer="workspace",
    ),
    _buffer(
        "[WORKSPACE DEBUG] Workspace ",
        r"Workspace (?P<state>locked|unlocked)\. Current sizes: \[?(?P<size_mib>NUM)?",
        source="v1/worker/workspace.py, from 0.16, with VLLM_DEBUG_WORKSPACE",
        buffer="workspace",
    ),
    _buffer(
        "Sparse MLA top-k mask workspace (",
        r"Sparse MLA top-k mask workspace \((?P<size_mib>NUM) MiB\)",
        source="model_executor/layers/attention/sparse_mla_attention.py, from 0.29",
        buffer="sparse MLA top-k mask",
    ),
    _buffer(
        "TokenSpeed MLA decode workspace: ",
        r"TokenSpeed MLA decode workspace: (?P<size_gib>NUM) GiB",
        source="v1/attention/backends/mla/tokenspeed_mla.py, from 0.33",
        buffer="attention backend (TOKENSPEED_MLA)",
    ),
    _buffer(
        " MiB / shape",
        r"FlyDSL .{1,300}?VRAM = (?P<size_mib>NUM) MiB / shape",
        source="v1/attention/ops/flydsl_turboquant_decode.py, flydsl_ultraquant_decode.py, from 0.29",
        buffer="FlyDSL decode",
    ),
    _buffer(
        "Allocated the KDA RecoverSSM verify records: ",
        r"Allocated the KDA RecoverSSM verify records: (?P<size_gib>NUM) GiB in total for (?P<max_requests>NUM) requests",
        source="models/kimi_k3/nvidia/kda.py, from 0.33",
        buffer="RecoverSSM verify records",
    ),
    _buffer(
        "of device memory to buffers to load ",
        r"Allocating (?P<size_mib>NUM) MB of device memory to buffers to load",
        source="model_executor/model_loader/reload/layerwise.py, from 0.22",
        buffer="layers being reloaded",
    ),
    _buffer(
        "[StaticBufferPool] Allocated ",
        r"\[StaticBufferPool\] Allocated .{1,120}? total (?P<size_gb>NUM) GB",
        source="model_executor/offloader/prefetch.py, from 0.18, debug",
        buffer="layers fetched ahead",
    ),
    _buffer(
        "[PrefetchOffloader] Initialized ",
        r"\[PrefetchOffloader\] Initialized \S{1,12} modules\. Total GPU memory saved: (?P<offloaded_gb>NUM) GB, Static buffer "
        r"pool: (?P<size_gb>NUM) GB",
        source="model_executor/offloader/prefetch.py, from 0.18",
        buffer="layers fetched ahead",
    ),
    _buffer(
        "Total CPU offloaded parameters: ",
        r"Total CPU offloaded parameters: (?P<size_gib>NUM)",
        source="model_executor/offloader/uva.py, from 0.18",
        buffer="offloaded weights",
        device="host",
    ),
    _buffer(
        "SimpleCPUOffloadWorker",
        r"SimpleCPUOffloadWorker(?: \[CPU\])?: .{1,60}? (?P<num_blocks>NUM) CPU blocks \((?P<size_gib>NUM) GB\)",
        source="v1/simple_kv_offload/worker.py, from 0.20",
        buffer="offloaded KV",
        device="host",
    ),
    _buffer(
        "SimpleCPUOffloadScheduler: Allocating ",
        r"SimpleCPUOffloadScheduler: Allocating (?P<num_blocks>NUM) (?:CPU|offload) blocks \((?P<size_gib>NUM) GB",
        source="v1/simple_kv_offload/manager.py, from 0.20",
        buffer="offloaded KV, as planned",
        device="host",
    ),
    _buffer(
        "RoutedExpertsManager CPU buffer: ",
        r"RoutedExpertsManager CPU buffer: (?P<size_gb>NUM) GB",
        source="model_executor/layers/fused_moe/routed_experts_capturer.py, 0.22-0.30",
        buffer="routed experts",
        device="host",
    ),
    _buffer(
        "Engram table offloaded to pinned host memory: ",
        r"Engram table offloaded to pinned host memory: .{1,60}?, (?P<size_gib>NUM) GiB",
        source="models/deepseek_v41, from 0.30",
        buffer="Engram tables",
        device="host",
    ),
    _buffer(
        "Sharing Engram tables across DP replicas needs ",
        r"Sharing Engram tables across DP replicas needs (?P<size_gib>NUM) GiB of",
        source="models/deepseek_v41, from 0.31",
        buffer="Engram tables",
        device="host",
    ),
    _buffer(
        "Cgroup memory preflight for ",
        r"Cgroup memory preflight for (?P<buffer>.{1,80}?): (?P<size_mib>NUM) MiB required, (?P<used_mib>NUM) MiB current usage, "
        r"(?P<free_mib>NUM) MiB available under (?P<limit_mib>NUM) MiB limit",
        source="utils/cpu_resource_utils.py, from 0.31",
        device="host",
    ),
    _buffer(
        " GiB of host pool in ",
        r"HiSparse: unpinned (?P<size_gib>NUM) GiB of host pool",
        source="v1/hisparse/runtime.py, from 0.30",
        buffer="HiSparse host pool",
        device="host",
    ),
    _buffer(
        "Initialized multimodal GPU IPC memory pool with ",
        r"Initialized multimodal GPU IPC memory pool with (?P<size_bytes>NUM) bytes for this API process",
        source="multimodal/gpu_ipc_memory.py, from 0.25",
        buffer="multimodal IPC pool",
    ),
    _buffer(
        "Flashinfer max size: ",
        r"Flashinfer max size: (?P<size_mib>NUM) MB",
        source="compilation/passes/fusion/allreduce_rms_fusion.py, from 0.11.1, debug",
        buffer="FlashInfer all-reduce",
    ),
    _buffer(
        "KV cache is ",
        r"KV cache is (?P<size_gib>NUM) GiB per layer",
        source="v1/attention/backends/mla/rocm_aiter_mla.py, from 0.31",
        buffer="kv of one layer",
    ),
)

SLEEP = (
    line_pattern(
        Event.SLEEP,
        "Sleep mode freed ",
        r"Sleep mode freed (?P<freed_gib>NUM) GiB memory, (?P<used_gib>NUM) GiB memory is still in use",
        source="v1/worker/gpu_worker.py, worker/worker.py, from 0.7",
    ),
    line_pattern(
        Event.SLEEP,
        "MemAllocator: sleep freed ",
        r"MemAllocator: sleep freed (?P<freed_gib>NUM) GiB memory in total, of which (?P<backed_up_gib>NUM) GiB is backed up "
        r"in CPU and the rest (?P<discarded_gib>NUM) GiB",
        source="device_allocator/cumem.py from 0.11, device_allocator/xpumem.py from 0.23",
    ),
    line_pattern(
        Event.SLEEP,
        "MemAllocator: discarded ",
        r"MemAllocator: discarded (?P<discarded_gib>NUM) GiB for tags (?P<tags>.{1,120}?)\.?$",
        source="device_allocator/cumem.py, device_allocator/xpumem.py, from 0.29",
    ),
    line_pattern(
        Event.SLEEP,
        "seconds to fall asleep",
        r"It took (?P<elapsed_s>NUM) seconds to fall asleep",
        source="executor/executor_base.py, v1/executor/abstract.py",
    ),
    line_pattern(
        Event.SLEEP,
        "seconds to discard tags ",
        r"It took (?P<elapsed_s>NUM) seconds to discard tags (?P<tags>.{1,120}?)\.?$",
        source="v1/executor/abstract.py, from 0.31",
    ),
    line_pattern(
        Event.SLEEP,
        "sleep the engine with level ",
        r"sleep the engine with level (?P<level_id>NUM)",
        source="entrypoints/openai/api_server.py, 0.7.3-0.8.0",
    ),
    line_pattern(
        Event.WAKE,
        "seconds to wake up",
        r"It took (?P<elapsed_s>NUM) seconds to wake up(?: tags (?P<tags>.{1,120}?))?\.?$",
        source="executor/executor_base.py, v1/executor/abstract.py",
    ),
    line_pattern(
        Event.WAKE,
        "wake up the engine with tags: ",
        r"wake up the engine with tags: (?P<tags>.{1,120})",
        source="entrypoints/openai/api_server.py, entrypoints/serve/dev/sleep/api_router.py, from 0.8",
    ),
)

BUFFER_PATTERNS = BUFFERS + SLEEP
