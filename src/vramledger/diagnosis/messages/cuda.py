"""Messages of the CUDA and HIP runtimes and drivers, of their libraries, of collectives and of kernel compilers."""

from __future__ import annotations

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import wording

CUDA_OOM = MessageKind(
    name="cuda-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a call outside the caching allocator had no memory: context, event, module, graph, library, or pinned host memory",
    source="CUDA and HIP runtimes: error 2 (cudaErrorMemoryAllocation, hipErrorOutOfMemory)",
)
CUDA_DRIVER_OOM = MessageKind(
    name="cuda-driver-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the driver had no device memory for a mapping, a context or a module",
    source="CUDA driver: CUDA_ERROR_OUT_OF_MEMORY (2); HSA runtime",
)
LIBRARY_HANDLE = MessageKind(
    name="library-handle",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a math library could not allocate its handle or workspace: the device is full outside the allocator's pool",
    source="cuBLAS, cuDNN, cuSOLVER, cuSPARSE, hipBLAS: ..._STATUS_ALLOC_FAILED",
)
LIBRARY_START = MessageKind(
    name="library-start",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a math library could not be initialised, which a full device causes, and other things too",
    source="cuBLAS, cuDNN: ..._STATUS_NOT_INITIALIZED",
    proves_memory=False,
)
PINNED_ARGUMENT = MessageKind(
    name="cuda-invalid-argument",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="an argument was refused; from a pinned allocation it is a host allocation too large for the driver",
    source="CUDA runtime: error 1 (cudaErrorInvalidValue)",
    proves_memory=False,
)
NCCL_OOM = MessageKind(
    name="nccl-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a communicator's buffers or kernels found no device memory",
    source="NCCL src/include/checks.h, 2.4 on",
)
NCCL_UNHANDLED = MessageKind(
    name="nccl-unhandled",
    domain=Domain.DEVICE,
    standing=Standing.CONSEQUENCE,
    meaning="a collective failed on an error of the runtime that is told elsewhere, if at all (NCCL_DEBUG=INFO)",
    source="NCCL, torch.distributed",
    proves_memory=False,
)
TRITON_SHARED = MessageKind(
    name="triton-out-of-resources",
    domain=Domain.SHARED_MEMORY_PER_BLOCK,
    standing=Standing.CAUSE,
    meaning="a kernel wants more of a multiprocessor's on-chip resources than it has; device memory does not matter",
    source="triton python/triton/runtime/errors.py, 2.0 on",
)
TOO_MANY_RESOURCES = MessageKind(
    name="launch-out-of-resources",
    domain=Domain.SHARED_MEMORY_PER_BLOCK,
    standing=Standing.CAUSE,
    meaning="a kernel's launch wants more registers or on-chip memory than there are; device memory does not matter",
    source="CUDA runtime: error 701 (cudaErrorLaunchOutOfResources)",
)
ILLEGAL_ACCESS = MessageKind(
    name="illegal-access",
    domain=Domain.NONE,
    standing=Standing.CAUSE,
    meaning="a kernel read or wrote where it must not: no lack of memory",
    source="CUDA runtime: error 700; HIP and HSA memory faults",
    proves_memory=False,
)
XLA_OOM = MessageKind(
    name="xla-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="XLA's allocator or compiler found no room on the device",
    source="XLA: RESOURCE_EXHAUSTED of bfc_allocator.cc, the TPU compiler and PJRT",
)
XLA_ON_CHIP = MessageKind(
    name="xla-on-chip",
    domain=Domain.SHARED_MEMORY_PER_BLOCK,
    standing=Standing.CAUSE,
    meaning="a compiled kernel wants more of the TPU core's own memory than it has; device memory does not matter",
    source="XLA: the TPU compiler's memory spaces vmem, smem, cmem, sflag",
)
LEVEL_ZERO_OOM = MessageKind(
    name="level-zero-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="Level Zero found no device memory or no resources",
    source="oneAPI: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, UR_RESULT_ERROR_OUT_OF_RESOURCES",
)

PIECE_TOO_LARGE = MessageKind(
    name="piece-too-large",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="one allocation is larger than the device or its driver allows in one piece, however much is free",
    source="OpenVINO intel_gpu ocl_engine.cpp; Intel Extension for PyTorch",
)
ARENA = MessageKind(
    name="onnx-arena-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="ONNX Runtime's arena could not serve a request",
    source="onnxruntime core/framework/bfc_arena.cc",
)

KINDS = (
    PIECE_TOO_LARGE,
    ARENA,
    CUDA_OOM,
    CUDA_DRIVER_OOM,
    LIBRARY_HANDLE,
    LIBRARY_START,
    PINNED_ARGUMENT,
    NCCL_OOM,
    NCCL_UNHANDLED,
    TRITON_SHARED,
    TOO_MANY_RESOURCES,
    ILLEGAL_ACCESS,
    XLA_OOM,
    XLA_ON_CHIP,
    LEVEL_ZERO_OOM,
)

_CALL = r"(?P<call>(?:cuda|cu|hip|nccl)[A-Za-z]{3,60}) ?\("
_XLA_PARTS = (
    r"[Aa]ttempting to (?:allocate|reserve) (?P<requested_sized>SIZE)",
    r"while trying to allocate (?P<requested_sized>SIZE)",
    r"(?:Failed to allocate|to allocate) request for (?P<requested_sized>SIZE)",
    r"There are (?P<free_sized>SIZE) free",
    r"Used (?P<used_sized>SIZE) of (?P<total_sized>SIZE)",
    r"Exceeded [a-z]{2,8} capacity by (?P<missing_sized>SIZE)",
)

PATTERNS = (
    wording(
        TRITON_SHARED,
        "out of resource: shared memory",
        r"out of resource: shared memory",
        r"Required: (?P<required_bytes>INT)",
        r"Hardware limit: ?(?P<limit_bytes>INT)",
        resource="shared memory",
    ),
    wording(
        TRITON_SHARED,
        "out of resource: ",
        r"out of resource: (?P<resource>[a-z][a-z ]{1,30})",
        r"Required: (?P<required_count>INT)",
        r"Hardware limit: ?(?P<limit_count>INT)",
    ),
    wording(
        TRITON_SHARED,
        "OutOfResources",
        r"OutOfResources: (?:out of resource: )?(?P<resource>[a-z][a-z ]{1,30})",
        r"Required: (?P<required_bytes>INT)",
        r"Hardware limit: ?(?P<limit_bytes>INT)",
        following=1,
    ),
    wording(
        TOO_MANY_RESOURCES,
        "too many resources requested for launch",
        r"too many resources requested for launch",
    ),
    wording(
        ILLEGAL_ACCESS,
        "illegal memory access",
        r"illegal memory access was encountered|illegal memory access",
    ),
    wording(ILLEGAL_ACCESS, "Memory access fault by GPU", r"Memory access fault by GPU"),
    wording(
        NCCL_OOM,
        "out of memory",
        r"\b(?:Cuda|CUDA|Hip|HIP) failure (?:[0-9]{1,4} )?'out of memory'",
        stage="first-collective",
    ),
    wording(NCCL_OOM, "out of memory", r"Last error:.{0,200}'out of memory'", stage="first-collective"),
    wording(NCCL_UNHANDLED, "NCCL WARN", r"NCCL WARN [^\n]{0,120}[Ff]ailure (?:[0-9]{1,4} )?'"),
    wording(NCCL_UNHANDLED, "unhandled cuda error", r"unhandled cuda error"),
    wording(NCCL_UNHANDLED, "ncclUnhandledCudaError", r"ncclUnhandledCudaError"),
    wording(
        LIBRARY_HANDLE,
        "_STATUS_ALLOC_FAILED",
        r"(?P<library>CUBLAS|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS|ROCBLAS|MIOPEN)_STATUS_ALLOC_FAILED",
        r"when calling (?:`)?(?P<call>[A-Za-z_]{3,60})",
    ),
    wording(
        LIBRARY_START,
        "_STATUS_NOT_INITIALIZED",
        r"(?P<library>CUBLAS|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS)_STATUS_NOT_INITIALIZED",
        r"when calling (?:`)?(?P<call>[A-Za-z_]{3,60})",
    ),
    wording(
        CUDA_DRIVER_OOM,
        "CUDA_ERROR_OUT_OF_MEMORY",
        r"(?<!cuMemCreate )CUDA_ERROR_OUT_OF_MEMORY(?! \(may not be an issue)",
    ),
    wording(CUDA_DRIVER_OOM, "MemoryRegion::BlockAllocator::alloc", r"BlockAllocator::alloc failed"),
    wording(CUDA_DRIVER_OOM, "HSA_STATUS_ERROR_OUT_OF_RESOURCES", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    wording(CUDA_OOM, "cudaErrorMemoryAllocation", r"cudaErrorMemoryAllocation", _CALL),
    wording(CUDA_OOM, "hipErrorOutOfMemory", r"hipErrorOutOfMemory", _CALL),
    wording(CUDA_OOM, "CUDA failure 2", r"CUDA failure 2\b"),
    wording(
        CUDA_OOM,
        "error: out of memory",
        r"(?P<backend>CUDA|HIP|ROCm) (?:runtime )?error: out of memory",
        r"in function (?P<function>[A-Za-z_]{1,60})",
    ),
    wording(CUDA_OOM, ": out of memory", r"Triton Error \[(?P<backend>CUDA|HIP)\]: out of memory"),
    wording(
        PIECE_TOO_LARGE,
        "max size of memory object allocation",
        r"Exceeded max size of memory object allocation",
        r"requested (?P<requested_bytes>INT) bytes",
        r"supported by device is (?P<limit_bytes>INT) bytes",
        following=2,
        until="supported by device is [0-9]",
    ),
    wording(
        ARENA,
        "Failed to allocate memory for requested buffer",
        r"Failed to allocate memory for requested buffer of size (?P<requested_bytes>INT)",
    ),
    wording(PINNED_ARGUMENT, "CUDA error: invalid argument", r"CUDA error: invalid argument"),
    wording(
        XLA_ON_CHIP,
        "Ran out of memory in memory space",
        r"Ran out of memory in memory space (?P<space>vmem|smem|cmem|sflag)",
        *_XLA_PARTS,
        following=2,
        until="capacity by [0-9]",
    ),
    wording(
        XLA_OOM,
        "RESOURCE_EXHAUSTED",
        r"RESOURCE_EXHAUSTED",
        *_XLA_PARTS,
        following=2,
        until="capacity by [0-9]|[0-9] free",
    ),
    wording(XLA_OOM, "XlaRuntimeError", r"XlaRuntimeError.{0,80}[Oo]ut of memory", *_XLA_PARTS),
    wording(
        LEVEL_ZERO_OOM,
        "OUT_OF_DEVICE_MEMORY",
        r"(?:UR|PI|ZE|CL)_[A-Z_]{0,30}OUT_OF_DEVICE_MEMORY",
        backend="XPU",
    ),
    wording(
        LEVEL_ZERO_OOM,
        "RESULT_ERROR_OUT_OF_RESOURCES",
        r"(?:UR|PI|ZE)_RESULT_ERROR_OUT_OF_RESOURCES",
        backend="XPU",
    ),
)
