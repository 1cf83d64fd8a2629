"""Messages of PyTorch's allocators, 1.0 to 2.13, on every kind of device."""

from __future__ import annotations

from vramledger.diagnosis.messages.cuda import PIECE_TOO_LARGE
from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import Part, part, wording

TORCH_OOM = MessageKind(
    name="torch-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the caching allocator could not serve a request, after it had returned its unused segments",
    source="pytorch c10/cuda/CUDACachingAllocator.cpp, c10/xpu/XPUCachingAllocator.cpp, 1.0 to 2.13",
)
TORCH_OOM_RETRY = MessageKind(
    name="torch-oom-retry",
    domain=Domain.DEVICE,
    standing=Standing.WARNING,
    meaning="an allocation failed; the allocator now empties its cache and tries again, which may succeed",
    source="pytorch c10/cuda/CUDACachingAllocator.cpp, about 2.12 on",
)
TORCH_ASYNC_OOM = MessageKind(
    name="torch-async-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the cudaMallocAsync backend could not serve a request",
    source="pytorch c10/cuda/CUDAMallocAsyncAllocator.cpp, 1.12 on",
)
TORCH_MPS_OOM = MessageKind(
    name="torch-mps-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a request would pass the high-water mark of the unified memory that Metal recommends",
    source="pytorch aten/src/ATen/mps/MPSAllocator.mm, 1.13 on",
)
TORCH_NVML_ASSERT = MessageKind(
    name="torch-nvml-assert",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="device memory ran out, and its message could not be built because NVML is missing or failed",
    source="pytorch c10/cuda/CUDACachingAllocator.cpp, 2.1 on",
)
TORCH_IPC_CONFLICT = MessageKind(
    name="torch-ipc-conflict",
    domain=Domain.NONE,
    standing=Standing.CAUSE,
    meaning="tensors of expandable segments were to be shared between processes: two settings that exclude each other",
    source="pytorch c10/cuda/CUDACachingAllocator.cpp, 2.1 to 2.5",
)
TORCH_COUNTERS = MessageKind(
    name="torch-counters",
    domain=Domain.DEVICE,
    standing=Standing.EVIDENCE,
    meaning="a program printed the allocator's own counters",
    source="programs that print torch.cuda.memory_allocated() and the like",
)

KINDS = (
    TORCH_COUNTERS,
    TORCH_OOM,
    TORCH_OOM_RETRY,
    TORCH_ASYNC_OOM,
    TORCH_MPS_OOM,
    TORCH_NVML_ASSERT,
    TORCH_IPC_CONFLICT,
)

# What was being done, where whoever caught the exception says so on the same line.
_STAGES: tuple[Part, ...] = (
    part(r"Failed to load model - not enough GPU memory", anywhere=True, stage="weight-load"),
    part(r"Capture [A-Za-z -]{0,40}(?:cuda|CUDA|CPU) graph failed", anywhere=True, stage="graph-capture"),
    part(r"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", anywhere=True, stage="graph-capture"),
    part(r"Method Warmup encountered|Unable to warmup|warmup\{", anywhere=True, stage="warmup-forward"),
    part(r"Method Prefill encountered|\}:prefill", anywhere=True, stage="prefill"),
    part(r"Method Decode encountered|\}:decode", anywhere=True, stage="decode"),
    part(r"Error executing load_single_module", anywhere=True, stage="weight-load"),
    part(r"\bin profile_run\b", anywhere=True, stage="profile-run"),
)
_PROCESS = r"Process (?:[0-9]{1,10}|\.{3}|…|<[A-Za-z]{1,8}>|[A-Z]{1,8}) has SIZE memory in use\.?"
_OWN = r"Including non-PyTorch memory, this process has SIZE memory in use\.?"
_PARTS: tuple[str | Part, ...] = (
    r"\b(?:GPU|NPU|XPU|MLU|MUSA) {1,3}(?P<device_id>[0-9]{1,4})\b",
    r"(?P<total_sized>SIZE) total capacity",
    r"total capaci?ty of (?P<total_sized>SIZE)",
    r"(?P<free_sized>SIZE) (?:is )?free\b",
    rf"(?P<processes>(?:{_PROCESS} ?(?:{_OWN} ?)?){{1,128}})",
    r"this process has (?P<this_process_sized>SIZE) memory in use",
    r"(?P<allowed_sized>SIZE) allowed;",
    r"Of the allocated memory (?P<allocated_sized>SIZE) is allocated",
    r"(?P<allocated_sized>SIZE) already allocated",
    r"with (?P<private_pools_sized>SIZE) allocated in private pools",
    r"(?P<reserved_unallocated_sized>SIZE) is reserved by PyTorch\b",
    r"(?P<reserved_unallocated_sized>SIZE) cached\)",
    r"(?P<reserved_sized>SIZE) reserved in total by PyTorch",
    part(r"batch\{batch_size=(?P<batch_size>INT)", anywhere=True),
    *_STAGES,
)
_ENDS = r"unallocated\b|by PyTorch\)|cached\)|pool\.|(?:\.\.\.|…)\s{0,20}$"
_WRAPPED_LINES = 9
_BACKEND = r"(?P<backend>CUDA|HIP|XPU|NPU|MLU|MUSA|GCU|PrivateUse1)"

PATTERNS = (
    wording(
        PIECE_TOO_LARGE,
        "memory block with size larger than",
        r"can NOT allocate memory block with size larger than (?P<limit_sized>SIZE)",
        r"Tried to allocate (?P<requested_sized>SIZE)",
        *_PARTS,
        backend="XPU",
    ),
    wording(
        TORCH_COUNTERS,
        "torch.cuda.m",
        r"torch\.cuda\.(?:max_)?memory_(?:allocated|reserved|cached)\(",
        r"\bmemory_allocated\(\S{0,20}\) ?[=:] ?(?P<allocated_bytes>INT)",
        r"\bmax_memory_allocated\(\S{0,20}\) ?[=:] ?(?P<peak_allocated_bytes>INT)",
        r"\bmemory_reserved\(\S{0,20}\) ?[=:] ?(?P<reserved_bytes>INT)",
    ),
    wording(
        TORCH_MPS_OOM,
        "MPS backend out of memory",
        r"MPS backend out of memory",
        r"MPS allocated: (?P<allocated_sized>SIZE)",
        r"other allocations: (?P<other_sized>SIZE)",
        r"max allowed: (?P<allowed_sized>SIZE)",
        r"Tried to allocate (?P<requested_sized>SIZE)",
        r"on (?P<pool>private|shared) pool",
        following=3,
        until=_ENDS,
        backend="MPS",
    ),
    wording(
        TORCH_OOM_RETRY,
        "memory allocation failed with OOM on device",
        r"memory allocation failed with OOM on device (?P<device_id>INT)?",
        r"trying to allocate (?P<requested_bytes>INT) bytes",
        r"\(free: (?P<free_bytes>INT)",
        r"total: (?P<total_bytes>INT)",
        following=2,
        until=r"total: [0-9]",
    ),
    wording(
        TORCH_OOM,
        "Tried to allocate",
        rf"(?:{_BACKEND} out of memory\. ?)?Tried to allocate(?: (?P<requested_sized>SIZE)| ?\.\.|…|$)",
        *_PARTS,
        following=_WRAPPED_LINES,
        until=_ENDS,
    ),
    wording(
        TORCH_ASYNC_OOM,
        "would exceed allowed memory",
        r"Allocation on device (?P<device_id>INT) would exceed allowed memory",
        r"Currently allocated {0,30}: {0,4}(?P<allocated_sized>SIZE)",
        r"Requested {0,30}: {0,4}(?P<requested_sized>SIZE)",
        r"Device limit {0,30}: {0,4}(?P<total_sized>SIZE)",
        r"Free \(according to CUDA\) {0,30}: {0,4}(?P<free_sized>SIZE)",
        r"PyTorch limit \(set by user-supplied memory fraction\) {0,30}: {0,4}(?P<allowed_sized>SIZE)",
        *_STAGES,
        following=6,
        backend="CUDA",
    ),
    wording(
        TORCH_NVML_ASSERT,
        "INTERNAL ASSERT FAILED",
        r"(?:NVML_SUCCESS|nvml[A-Z]).{0,200}INTERNAL ASSERT FAILED at.{0,200}CachingAllocator",
        backend="CUDA",
    ),
    wording(
        TORCH_IPC_CONFLICT,
        "cannot be shared between processes",
        r"expandable_segments:True cannot be shared between processes",
    ),
    # The exception's name alone, or a text broken or cut before its first number.
    wording(
        TORCH_OOM,
        "out of memory",
        rf"(?:torch\.(?:cuda\.)?OutOfMemoryError|RuntimeError): {_BACKEND} out of memory(?: ?\.|…|$)",
        r"Tried to allocate (?P<requested_sized>SIZE)",
        *_PARTS,
        following=_WRAPPED_LINES,
        until=_ENDS,
    ),
    wording(
        TORCH_OOM,
        "OutOfMemoryError",
        r"torch\.(?:cuda\.)?OutOfMemoryError",
        rf"OutOfMemoryError: {_BACKEND} out",
        r"Tried to allocate (?P<requested_sized>SIZE)",
        *_PARTS,
        following=_WRAPPED_LINES,
        until=_ENDS,
    ),
)
