"""Messages of TGI, TensorRT and TensorRT-LLM, LMDeploy and Dynamo."""

from __future__ import annotations

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import part, wording

TGI_WARMUP = MessageKind(
    name="tgi-warmup",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the largest batch that the limits allow does not fit; with few tokens the weights leave nothing",
    source="text-generation-inference router and server/models/flash_causal_lm.py, 0.9 on",
)
TGI_CAPACITY = MessageKind(
    name="tgi-capacity",
    domain=Domain.KV_POOL,
    standing=Standing.EVIDENCE,
    meaning="how many tokens the KV cache holds",
    source="text-generation-inference router/src/server.rs",
)
TGI_LIMIT = MessageKind(
    name="tgi-prefill-limit",
    domain=Domain.DEVICE,
    standing=Standing.EVIDENCE,
    meaning="how many tokens a prefill may have",
    source="text-generation-inference launcher, 2.3 on",
)
TGI_METHOD = MessageKind(
    name="tgi-method",
    domain=Domain.NONE,
    standing=Standing.CONSEQUENCE,
    meaning="a step of the shard failed; the reason stands beside it",
    source="text-generation-inference server/interceptor.py",
    proves_memory=False,
)
TRT_BUFFERS = MessageKind(
    name="trtllm-runtime-buffer",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a runtime buffer found no device memory",
    source="tensorrt_llm/runtime/tllmBuffers.h",
)
TRT_REFUSED = MessageKind(
    name="tensorrt-out-of-memory",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="TensorRT found no device memory to load or build an engine",
    source="TensorRT virtualMemoryBuffer.cpp, globWriter.cpp, executionContext.cpp",
)
TRT_REQUESTED = MessageKind(
    name="tensorrt-request-refused",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="TensorRT says how much it asked for",
    source="TensorRT virtualMemoryBuffer.cpp",
)
TRT_TACTIC = MessageKind(
    name="tensorrt-tactic-skipped",
    domain=Domain.DEVICE,
    standing=Standing.BENIGN,
    meaning="a way to compute a layer was skipped while an engine was built; another is used",
    source="TensorRT builder",
)
TRT_BUILD = MessageKind(
    name="tensorrt-build-failed",
    domain=Domain.NONE,
    standing=Standing.CONSEQUENCE,
    meaning="an engine could not be built; the reason stands above",
    source="tensorrt_llm builder",
    proves_memory=False,
)
EXECUTOR = MessageKind(
    name="trtllm-executor",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a component of the executor found no device memory; the table says what those before it took",
    source="tensorrt_llm/_torch/pyexecutor/py_executor_creator.py, 1.0 on; sizes in GiB",
)
TRT_KV_LENGTH = MessageKind(
    name="trtllm-kv-length",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="the KV cache holds fewer tokens than one sequence of the greatest length has",
    source="tensorrt_llm/batch_manager of the engine backend, 0.5 on",
)
LMDEPLOY = MessageKind(
    name="lmdeploy-oom",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="TurboMind found no device memory; no sizes are printed",
    source="lmdeploy src/turbomind/utils: allocator.h, memory_utils.cu",
)
LMDEPLOY_KV = MessageKind(
    name="lmdeploy-kv-none",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="weights leave nothing for the KV cache",
    source="lmdeploy/pytorch/engine",
)

KINDS = (
    TGI_WARMUP,
    TGI_CAPACITY,
    TGI_LIMIT,
    TGI_METHOD,
    TRT_BUFFERS,
    TRT_REFUSED,
    TRT_REQUESTED,
    TRT_TACTIC,
    TRT_BUILD,
    EXECUTOR,
    TRT_KV_LENGTH,
    LMDEPLOY,
    LMDEPLOY_KV,
)

PATTERNS = (
    wording(
        TGI_CAPACITY,
        "Setting max batch total tokens to",
        r"Setting max batch total tokens to (?P<kv_tokens>NUM)",
        stage="kv-sizing",
    ),
    wording(
        TGI_LIMIT,
        "Default `max_batch_prefill_tokens`",
        r"Default `max_batch_prefill_tokens` to (?P<prefill_tokens>NUM)",
    ),
    wording(
        TGI_WARMUP,
        "Not enough memory to handle",
        r"Not enough memory to handle",
        r"handle (?P<total_tokens>INT) total tokens",
        r"(?:handle|with) (?P<prefill_tokens>INT) prefill tokens",
        r"max_total_tokens=(?P<total_tokens>INT)",
        part(r"max_input_length=(?P<max_input_len>INT)", anywhere=True),
        stage="warmup-forward",
    ),
    wording(
        EXECUTOR,
        "Executor creation failed",
        r"Executor creation failed (?:due to|with an error which might indicate) insufficient GPU memory",
        r"component could not be created: (?P<component>[A-Z][^:]{1,80}?) ?(?=Total GPU|Free GPU|Previously|$)",
        r"Total GPU memory \(GiB\): (?P<total_gib>NUM)",
        r"Free GPU memory before component creation attempt \(GiB\): (?P<free_gib>NUM)",
        r"(?P<components>(?:[A-Z][^:/]{1,90}: [0-9]{1,6}\.[0-9]{1,4} / [0-9]{1,6}\.[0-9]{1,4} ?){1,40})",
        following=24,
        until="Please refer to",
        stage="executor-create",
    ),
    wording(
        TRT_KV_LENGTH,
        "maxTokensInPagedKvCache",
        r"maxTokensInPagedKvCache (?:\((?P<kv_tokens>INT)\) )?must be large enough",
        stage="kv-sizing",
    ),
    wording(
        TRT_BUFFERS,
        "tllmBuffers.h",
        r"CUDA runtime error in .{0,200}out of memory",
        r"::(?P<call>cuda[A-Za-z]{3,40})",
        stage="runtime-buffers",
    ),
    wording(
        TRT_REQUESTED,
        "Requested amount of GPU memory",
        r"Requested amount of GPU memory \((?P<requested_bytes>INT)? ?bytes\) could not be allocated",
    ),
    wording(
        TRT_REFUSED,
        "Error Code 2: OutOfMemory",
        r"Error Code 2: OutOfMemory",
        r"Requested size was (?P<requested_bytes>INT) bytes",
    ),
    wording(TRT_REFUSED, "Error Code 1: Cuda Runtime", r"Error Code 1: Cuda Runtime \(out of memory\)"),
    wording(
        TRT_TACTIC,
        "due to insufficient memory on requested size",
        r"[Ss]kipping tactic (?P<tactic_id>INT)",
        r"on requested size of (?P<requested_size>INT)",
    ),
    wording(
        TRT_TACTIC,
        "Tactic Device request",
        r"Tactic Device request: ?(?P<requested_sized>SIZE)",
        r"Available: ?(?P<available_sized>SIZE)",
    ),
    wording(TRT_BUILD, "Engine building failed", r"Engine building failed", stage="build"),
    wording(
        LMDEPLOY_KV,
        "No enough gpu memory for kv cache",
        r"No enough gpu memory for kv cache",
        stage="kv-sizing",
    ),
    wording(
        LMDEPLOY,
        "[TM][ERROR]",
        r"\[TM\]\[ERROR\] .{0,60}CUDA runtime error: out of memory",
        r"out of memory (?P<file>\S{1,300}:[0-9]{1,6})",
    ),
    wording(
        TGI_METHOD, "encountered an error", r"Method (?P<method>[A-Z][A-Za-z]{2,30}) encountered an error"
    ),
)
