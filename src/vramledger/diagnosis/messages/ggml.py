"""Messages of llama.cpp and ggml on CUDA, HIP, Vulkan, Metal, SYCL, CANN and the CPU, and of Ollama around them."""

from __future__ import annotations

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import part, wording

ALLOC = MessageKind(
    name="ggml-alloc",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a buffer could not be allocated on a device; the next line says which buffer it was",
    source="ggml-cuda.cu, ggml-cann.cpp, ggml-sycl.cpp, ggml-vulkan.cpp, ggml-metal",
)
HOST_ALLOC = MessageKind(
    name="ggml-host-alloc",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="a buffer could not be allocated in host memory",
    source="ggml.c, ggml-backend.cpp",
)
BUFFER = MessageKind(
    name="ggml-buffer",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the buffer that could not be had: weights, KV, states, outputs or the largest graph's working memory",
    source="ggml-alloc.c, llama-model.cpp, llama-kv-cache.cpp, llama-context.cpp and their older names",
)
RUNTIME = MessageKind(
    name="ggml-cuda-error",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a call failed in service: the pool of temporary buffers, a graph, a library handle",
    source="ggml-cuda.cu: ggml_cuda_error, b2000 on; CUDA_CHECK before",
)
WORKING_SET = MessageKind(
    name="metal-working-set",
    domain=Domain.DEVICE,
    standing=Standing.WARNING,
    meaning="more is allocated than Metal recommends for the GPU to work on at a time",
    source="ggml-metal",
)
CELLS = MessageKind(
    name="llama-kv-cells",
    domain=Domain.KV_POOL,
    standing=Standing.CAUSE,
    meaning="no cells of the cache, or none in one piece, for this batch",
    source="llama-context.cpp, llama-kv-cache.cpp, tools/server",
)
CELLS_RETRY = MessageKind(
    name="llama-kv-retry",
    domain=Domain.KV_POOL,
    standing=Standing.WARNING,
    meaning="the server tries the batch again in smaller pieces",
    source="tools/server/server-context.cpp (examples/server/server.cpp before)",
)
NO_VMM = MessageKind(
    name="ggml-no-vmm",
    domain=Domain.DEVICE,
    standing=Standing.EVIDENCE,
    meaning="the device has no virtual memory management: the pool cannot join or grow its pieces",
    source="ggml-cuda.cu: ggml_cuda_init",
)
PINNED = MessageKind(
    name="pinned-fallback",
    domain=Domain.HOST,
    standing=Standing.BENIGN,
    meaning="memory that cannot be moved was refused; ordinary host memory is used in its place",
    source="ggml-cuda.cu: ggml_cuda_host_malloc; llama-mmap.cpp: mlock",
)
RESERVE_RETRY = MessageKind(
    name="ggml-reserve-retry",
    domain=Domain.DEVICE,
    standing=Standing.WARNING,
    meaning="the working memory for pipeline parallelism did not fit; it is tried again without",
    source="llama-context.cpp, 2026 on",
)
COPIES = MessageKind(
    name="llama-pipeline-copies",
    domain=Domain.DEVICE,
    standing=Standing.EVIDENCE,
    meaning="the working memory holds its inputs several times, so that devices can work one after the other",
    source="llama-context.cpp (llama.cpp before), 2024-03 on",
)
COLLECTIVE = MessageKind(
    name="ggml-collective",
    domain=Domain.DEVICE,
    standing=Standing.CONSEQUENCE,
    meaning="a collective between devices failed; its buffers may have found no room",
    source="ggml-cuda.cu with NCCL",
    proves_memory=False,
)
HOST_CHECK = MessageKind(
    name="ollama-host-check",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="Ollama refuses a model that needs more host memory than there is",
    source="ollama llm/server.go, 0.3 on",
)
LAYOUT = MessageKind(
    name="ollama-layout",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="Ollama found no way to lay the model over the devices",
    source="ollama ml/backend.go: ErrNoMem, 0.7 on",
)
NOT_RECOVERED = MessageKind(
    name="ollama-vram-not-recovered",
    domain=Domain.DEVICE,
    standing=Standing.WARNING,
    meaning="after a model was unloaded the device's free memory did not come back in time; often harmless",
    source="ollama server/sched.go, 0.1.33 on",
)
SYSTEM_MEMORY = MessageKind(
    name="ollama-system-memory",
    domain=Domain.HOST,
    standing=Standing.EVIDENCE,
    meaning="the host's memory before a model is loaded",
    source="ollama llm/server.go, 0.3 on",
)
RELOADING = MessageKind(
    name="ollama-reloading",
    domain=Domain.DEVICE,
    standing=Standing.EVIDENCE,
    meaning="a loaded model is unloaded and loaded again with other settings",
    source="ollama server/sched.go: debug log",
)
RUNNER_ENDED = MessageKind(
    name="ollama-runner-ended",
    domain=Domain.NONE,
    standing=Standing.CONSEQUENCE,
    meaning="the process that runs the model ended; the reason stands above or behind the colon",
    source="ollama llm/server.go",
    proves_memory=False,
)
LOAD_ENDED = MessageKind(
    name="llama-load-failed",
    domain=Domain.NONE,
    standing=Standing.CONSEQUENCE,
    meaning="model or context could not be made; the reason stands above",
    source="llama-model.cpp, llama-context.cpp, common/common.cpp",
    proves_memory=False,
)

KINDS = (
    ALLOC,
    HOST_ALLOC,
    BUFFER,
    RUNTIME,
    WORKING_SET,
    CELLS,
    CELLS_RETRY,
    NO_VMM,
    PINNED,
    RESERVE_RETRY,
    COPIES,
    COLLECTIVE,
    HOST_CHECK,
    LAYOUT,
    NOT_RECOVERED,
    SYSTEM_MEMORY,
    RELOADING,
    RUNNER_ENDED,
    LOAD_ENDED,
)

_BUFFER = r"failed to allocate (?P<device>[A-Za-z0-9_\[\]]{1,40}) buffer of size (?P<buffer_bytes>INT)"
_OLD_BUFFER = r"failed to allocate buffer of size (?P<buffer_bytes>INT)"
_ERROR_PARTS = (
    r"current device: (?P<device_id>INT)",
    r"in function (?P<function>[A-Za-z_0-9]{1,60})",
    r" at (?P<file>[^\s:]{1,300}:[0-9]{1,6})",
    r"(?P<call>(?:cuda|cu|hip|ggml_cuda|cublas|nccl)[A-Za-z_]{3,60}) ?\(",
)

PATTERNS = (
    wording(
        PINNED,
        "of pinned memory",
        r"failed to allocate (?P<requested_mib>NUM) M(?:i)?B of pinned memory",
    ),
    wording(PINNED, "Failed to allocate pinned memory", r"Failed to allocate pinned memory"),
    wording(PINNED, "failed to mlock", r"failed to mlock (?P<requested_bytes>INT)-byte buffer"),
    wording(
        ALLOC,
        "alloc failed: out of memory",
        r"allocating (?P<requested_mib>NUM) MiB on device (?P<device_id>INT)",
        r"(?P<call>[A-Za-z]{3,20}[Mm]alloc) failed",
    ),
    wording(
        ALLOC,
        " MiB on device ",
        r"allocating (?P<requested_mib>NUM) MiB on device (?P<device_id>INT): (?P<call>[A-Za-z]{3,20}[Mm]alloc) failed",
    ),
    wording(
        ALLOC,
        "Device memory allocation of size",
        r"Device memory allocation of size (?P<requested_bytes>INT)? ?failed",
        backend="Vulkan",
    ),
    wording(
        ALLOC,
        "Bytes of memory on device",
        r"can't (?:allocate|malloc) (?P<requested_bytes>INT) Bytes",
        backend="SYCL",
    ),
    wording(ALLOC, "ErrorOutOfDeviceMemory", r"ErrorOutOfDeviceMemory", backend="Vulkan"),
    wording(
        ALLOC,
        "Insufficient Memory",
        r"Insufficient Memory \((?P<error>[0-9A-Za-z:]{1,100})\)",
        backend="Metal",
    ),
    wording(
        ALLOC,
        "error: failed to allocate buffer, size",
        r"failed to allocate buffer, size = {1,8}(?P<requested_mib>NUM) MiB",
        backend="Metal",
    ),
    wording(
        WORKING_SET,
        "recommended max working set size",
        r"current allocated size is greater than the recommended max working set size",
        part(r"size = {1,8}(?P<size_mib>NUM) MiB", anywhere=True),
        part(r"\( {0,8}(?P<allocated_mib>NUM) / {1,8}(?P<limit_mib>NUM)\)", anywhere=True),
    ),
    wording(
        ALLOC,
        "failed with status 5",
        r"command buffer [0-9]{1,4} failed with status 5",
        r"Insufficient Memory \((?P<error>[0-9A-Za-z:]{1,100})\)",
        following=2,
        backend="Metal",
    ),
    wording(BUFFER, "alloc_tensor_range: failed", _BUFFER),  # of weights, KV, states or an adapter
    wording(BUFFER, "gallocr_reserve_n", _BUFFER, buffer="compute", stage="compute-buffers"),
    wording(BUFFER, "gallocr_reserve_n", _OLD_BUFFER, buffer="compute", stage="compute-buffers"),
    wording(HOST_ALLOC, "failed to allocate CPU buffer", _BUFFER),
    wording(HOST_ALLOC, "cpu_buffer_type_alloc_buffer: failed", _OLD_BUFFER),
    wording(
        HOST_ALLOC,
        "insufficient memory (attempted",
        r"insufficient memory \(attempted to allocate {1,8}(?P<requested_mib>NUM) M(?:i)?B\)",
    ),
    wording(BUFFER, " buffer of size ", _BUFFER),
    wording(
        BUFFER,
        "for kv cache",
        r"failed to allocate buffer for (?:the )?kv cache|failed to create ggml context for kv cache",
        buffer="kv",
        stage="kv-alloc",
    ),
    wording(
        BUFFER, "for self-attention cache", r"failed for self-attention cache", buffer="kv", stage="kv-alloc"
    ),
    wording(
        BUFFER,
        "buffer for rs cache",
        r"failed to allocate buffer for rs cache",
        buffer="states",
        stage="kv-alloc",
    ),
    wording(
        BUFFER,
        "failed to allocate compute",
        r"failed to allocate compute (?:(?P<graph>pp|tg|graph) )?(?:buffers)?",
        buffer="compute",
        stage="compute-buffers",
    ),
    wording(
        BUFFER,
        "failed to allocate output buffer",
        r"failed to allocate output buffer of size (?P<requested_mib>NUM) MiB",
        buffer="output",
        stage="compute-buffers",
    ),
    wording(
        BUFFER,
        "unable to allocate",
        r"unable to allocate (?P<device>[A-Za-z0-9_\[\]]{1,40}) buffer",
        buffer="weights",
        stage="weight-load",
    ),
    wording(
        RUNTIME,
        "error: out of memory",
        r"(?P<backend>CUDA|ROCm|MUSA) error: out of memory\s{1,40}(?=.{0,200}(?:current device|ggml))",
        *_ERROR_PARTS,
        following=3,
    ),
    wording(
        RUNTIME,
        "error 2 at",
        r"(?P<backend>CUDA|ROCm) error 2 at (?P<file>[^\s:]{1,300}:[0-9]{1,6}): out of memory",
        *_ERROR_PARTS,
        following=1,
    ),
    wording(
        RUNTIME,
        "look_ahead_size, device)",
        r"ggml_cuda_device_malloc\(&ptr, look_ahead_size",
        call="ggml_cuda_device_malloc",
    ),
    wording(
        RESERVE_RETRY,
        "retrying without pipeline parallelism",
        r"allocation failed, retrying without pipeline parallelism",
    ),
    wording(
        COPIES,
        "pipeline parallelism enabled",
        r"pipeline parallelism enabled",
        r"n_copies ?= ?(?P<copies_count>INT)",
    ),
    wording(COLLECTIVE, "NCCL_DEBUG=INFO", r"CUDA error: unhandled cuda error"),
    wording(
        CELLS,
        "failed to find a memory slot",
        r"failed to find a memory slot for batch of size (?P<requested_tokens>INT)?",
    ),
    wording(
        CELLS_RETRY,
        "failed to find free space in the KV cache",
        r"failed to find free space in the KV cache",
        r"n_batch = (?P<batch_tokens>INT)",
        r"off = (?P<offset_tokens>INT)",
        r"ret = (?P<result_id>INT)",
    ),
    wording(
        CELLS,
        "failed to decode the batch",
        r"failed to decode the batch",
        r"n_batch = (?P<batch_tokens>INT)",
        r"ret = (?P<result_id>INT)",
    ),
    wording(CELLS, "could not find a KV slot", r"could not find a KV slot for the batch"),
    wording(CELLS, "failed to prepare attention ubatches", r"failed to prepare attention ubatches"),
    wording(
        CELLS,
        "available cells in kv cache",
        r"failed to find (?:(?P<requested_tokens>INT) )?available cells in kv cache",
        stage="restore",
    ),
    wording(
        CELLS,
        "not enough cells in kv cache",
        r"not enough cells in kv cache",
        r"to restore state \((?P<requested_tokens>INT) > (?P<available_tokens>INT)\)",
        stage="restore",
    ),
    wording(
        NO_VMM,
        "VMM: no",
        r"\bVMM: no\b",
        r"[Dd]evice (?P<device_id>[0-9]{1,3}):",
    ),
    wording(NO_VMM, "NO_VMM = 1", r"\bNO_VMM = 1\b"),
    wording(
        HOST_CHECK,
        "model requires more system memory",
        r"model requires more system memory",
        r"memory \((?P<needed_sized>SIZE)\)",
        r"is available \((?P<available_sized>SIZE)\)",
        stage="startup-check",
    ),
    wording(
        LAYOUT,
        "insufficient memory - required allocations",
        r"insufficient memory - required allocations",
        stage="weight-load",
    ),
    wording(
        LAYOUT,
        "memory layout cannot be allocated",
        r"memory layout cannot be allocated",
        r"num_gpu = (?P<device_layers_count>INT)",
        stage="weight-load",
    ),
    wording(
        NOT_RECOVERED,
        "gpu VRAM usage didn't recover",
        r"gpu VRAM usage didn't recover within timeout",
        r"seconds=(?P<waited_s>NUM)",
        r"runner\.size=[\"']?(?P<runner_sized>SIZE)",
        r"runner\.vram=[\"']?(?P<vram_sized>SIZE)",
        stage="unload",
    ),
    wording(
        SYSTEM_MEMORY,
        "system memory",
        r"msg=[\"']system memory[\"']",
        r"\btotal=[\"']?(?P<total_sized>SIZE)",
        r"\bfree=[\"']?(?P<free_sized>SIZE)",
        r"\bfree_swap=[\"']?(?P<free_swap_sized>SIZE)",
    ),
    wording(
        RELOADING,
        "msg=reloading",
        r"msg=reloading",
        r"runner\.size=[\"']?(?P<runner_sized>SIZE)",
        r"runner\.vram=[\"']?(?P<vram_sized>SIZE)",
        r"runner\.num_ctx=(?P<context_len>INT)",
        stage="reload",
    ),
    wording(
        RUNNER_ENDED, "llama runner process", r"llama runner process (?:has terminated|no longer running)"
    ),
    wording(
        LOAD_ENDED,
        "failed to",
        r"failed to (?:initialize the context|create context with model|create llama_context|load model)\b",
    ),
    wording(LOAD_ENDED, "due to model loading error", r"exiting due to model loading error"),
    wording(LOAD_ENDED, "error loading model", r"error loading model"),
)
