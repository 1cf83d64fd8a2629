"""Flags of trtllm-serve and fields of its configuration (KvCacheConfig, PeftCacheConfig, CudaGraphConfig); None is
"not given"."""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.option import against_rule as _bad
from vramledger.engines.requests import NO_REQUESTS, Requests
from vramledger.models.checkpoint import Checkpoint

BACKENDS = ("pytorch", "tensorrt")
POLICIES = ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH")
QUANTIZATIONS = ("fp8", "int8_weight_only", "int4_weight_only")
ATTENTION_BACKENDS = ("TRTLLM", "FLASHINFER", "VANILLA")
_MOST = 2**31 - 1
_POSITIVE = (
    "tp_size", "pp_size", "ep_size", "max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width", "max_tokens",
    "tokens_per_block", "cuda_graph_max_batch_size", "mamba_state_cache_interval",
)  # fmt: skip


class Speculation(Struct, frozen=True, kw_only=True):
    """`speculative_config`: the decoding type, tokens drafted a step, the draft's own checkpoint if it has one.

    MTP's layers are in the target's checkpoint; Eagle3 runs inside the target's executor (one model), DraftTarget beside
    it (two models).
    """

    decoding_type: str
    max_draft_len: int
    draft: Checkpoint | None = None

    @property
    def is_one_model(self) -> bool:
        return self.decoding_type in ("MTP", "Eagle3")

    def __str__(self) -> str:
        model = "" if self.draft is None else f" of {self.draft.model.id}"
        return f"{self.decoding_type}{model}, {self.max_draft_len} tokens"


class TrtLlmFlags(Struct, frozen=True, kw_only=True):
    """What the command line and the configuration said; `requests` are no flags but what is asked of the engine."""

    backend: str | None = None
    tp_size: int = 1
    pp_size: int = 1
    ep_size: int | None = None
    enable_attention_dp: bool = False
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    max_seq_len: int | None = None
    max_beam_width: int = 1
    free_gpu_memory_fraction: float | None = None
    max_tokens: int | None = None
    max_gpu_total_bytes: int | None = None
    tokens_per_block: int | None = None
    enable_block_reuse: bool = True
    max_attention_window: tuple[int, ...] | None = None
    host_cache_size: int | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    mamba_ssm_cache_dtype: str = "auto"
    mamba_state_cache_interval: int | None = None
    use_kv_cache_manager_v2: bool = False
    max_util_for_resume: float = 0.95
    capacity_scheduler_policy: str = "GUARANTEED_NO_EVICT"
    attn_backend: str = "TRTLLM"
    cuda_graph: bool = True
    cuda_graph_max_batch_size: int | None = None
    cuda_graph_batch_sizes: tuple[int, ...] | None = None
    cuda_graph_enable_padding: bool = False
    enable_lora: bool = False
    lora_device_cache_percent: float = 0.02
    lora_host_cache_size: int = 1 << 30
    speculative: Speculation | None = None
    requests: Requests = NO_REQUESTS

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _bad(name, value, "must be at least 1")
            if value is not None and name != "max_tokens" and value > _MOST:
                raise _bad(name, value, f"must be at most {_MOST}: the engine counts in int32")
        for name in ("tp_size", "pp_size"):
            if getattr(self, name) > 4096:
                raise _bad(name, getattr(self, name), "must be at most 4096")
        size = self.tokens_per_block
        if size is not None and size & (size - 1):
            raise _bad(
                "tokens_per_block", size, "must be a power of two (cpp/tensorrt_llm/kernels/kvCacheUtils.h)"
            )
        for name in ("max_gpu_total_bytes", "host_cache_size", "lora_host_cache_size"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise _bad(name, value, "must not be negative")
        fraction = self.free_gpu_memory_fraction
        if fraction is not None and not 0 < fraction < 1:
            raise _bad("free_gpu_memory_fraction", fraction, "must be above 0 and below 1")
        if not 0 <= self.lora_device_cache_percent < 1:
            raise _bad("lora_device_cache_percent", self.lora_device_cache_percent, "must be a share below 1")
        if not 0 < self.max_util_for_resume <= 1:
            raise _bad("max_util_for_resume", self.max_util_for_resume, "must be above 0 and at most 1")
        if self.ep_size is not None and self.tp_size % self.ep_size:
            raise _bad("ep_size", self.ep_size, f"must divide --tp-size {self.tp_size}")
        for name in ("max_attention_window", "cuda_graph_batch_sizes"):
            values = getattr(self, name)
            if values is not None and (not values or min(values) < 1):
                raise _bad(name, values, "must list whole numbers of at least 1")

    @property
    def ep(self) -> int:
        return self.ep_size or 1
