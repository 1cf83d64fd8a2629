"""SGLang's flags under SGLang's own names; None is "not given"."""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.option import against_rule as _bad
from vramledger.engines.requests import NO_REQUESTS, Requests
from vramledger.errors import FlagError
from vramledger.models.adapters.adapter import Adapter

LORA_MODULES = (
    "qkv_proj", "o_proj", "gate_up_proj", "down_proj", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj",
    "embed_tokens", "lm_head",
)  # fmt: skip
DEEPEP_MODES = ("auto", "normal", "low_latency")
NORMALISED = {
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}  # fmt: skip
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK")


# srt/server_args.py, choices of all releases.
ATTENTION_BACKENDS = (
    "triton", "torch_native", "flex_attention", "dsa", "nsa", "dsv4", "compressed", "cutlass_mla", "fa3", "fa4",
    "flashinfer", "flashmla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla", "trtllm_mha", "dual_chunk_flash_attn",
    "hpc_ops", "minicpm_flashattn", "minicpm_flashinfer", "aiter", "wave", "intel_amx", "ascend", "intel_xpu", "mlu",
)  # fmt: skip
A2A_BACKENDS = ("none", "deepep", "mooncake", "nixl", "mori", "ascend_fuseep", "flashinfer", "megamoe")


class SglangFlags(Struct, frozen=True, kw_only=True):
    """What the command line said. `draft_layers` is how many layers a draft of its own checkpoint has, each as wide in
    KV as one of the target's; `pp_layer_partition` is SGLANG_PP_LAYER_PARTITION,
    `deepep_num_max_dispatch_tokens_per_rank` SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK, `expandable_segments` what PYTORCH_CUDA_ALLOC_CONF (PYTORCH_NPU_ALLOC_CONF) sets,
    `logprob_chunk_size` SGLANG_LOGPROB_CHUNK_SIZE (-1: no chunks); `requests` are no flags but what is asked of the engine.

    Raises FlagError for values outside what a flag takes.
    """

    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    ep_size: int = 1
    dcp_size: int = 1
    enable_dp_attention: bool = False
    enable_dp_lm_head: bool = False
    moe_dense_tp_size: int | None = None
    moe_a2a_backend: str = "none"
    deepep_mode: str = "auto"
    deepep_num_max_dispatch_tokens_per_rank: int = 128
    ep_num_redundant_experts: int = 0
    enable_eplb: bool = False
    eplb_rebalance_num_iterations: int = 1000
    pp_layer_partition: tuple[int, ...] | None = None
    mem_fraction_static: float | None = None
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int = 16384
    context_length: int | None = None
    page_size: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    attention_backend: str | None = None
    cuda_graph_max_bs: int | None = None
    disable_cuda_graph: bool = False
    disable_prefill_cuda_graph: bool = False
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    swa_full_tokens_ratio: float | None = None
    disable_hybrid_swa_memory: bool = False
    mamba_full_memory_ratio: float = 0.9
    max_mamba_cache_size: int | None = None
    mamba_ssm_dtype: str | None = None
    mamba_radix_cache_strategy: str = "auto"
    enable_lora: bool = False
    adapter: tuple[Adapter, ...] = ()
    max_loras_per_batch: int = 8
    max_lora_rank: int | None = None
    lora_target_modules: tuple[str, ...] = ("all",)
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    draft_layers: int | None = None
    enable_hierarchical_cache: bool = False
    hicache_ratio: float | None = None
    hicache_size: int = 0
    disaggregation_mode: str = "null"
    language_only: bool = False
    enable_post_capture_kv_sizing: bool = False
    expandable_segments: bool | None = None
    logprob_chunk_size: int | None = None
    load_format: str = "auto"
    model_loader_extra_config: tuple[tuple[str, object], ...] = ()
    weight_loader_disable_mmap: bool = False
    weight_loader_prefetch_checkpoints: bool = False
    requests: Requests = NO_REQUESTS

    def __post_init__(self) -> None:
        for name in _GROUPS:
            size = getattr(self, name)
            if not 1 <= size <= 4096:
                raise _bad(name, size, "must lie in 1 to 4096")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _bad(name, value, "must be at least 1")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise _bad(name, getattr(self, name), "must not be negative")
        for name in ("swa_full_tokens_ratio", "mamba_full_memory_ratio", "hicache_ratio"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1024:
                raise _bad(name, value, "must be above 0 and at most 1024")
        fraction = self.mem_fraction_static
        if fraction is not None and not 0 < fraction < 1:
            raise _bad("mem_fraction_static", fraction, "must lie between 0 and 1")
        if self.chunked_prefill_size is not None and (
            self.chunked_prefill_size == 0 or self.chunked_prefill_size < -1
        ):
            raise _bad("chunked_prefill_size", self.chunked_prefill_size, "must be at least 1, or -1 for off")
        chunk = self.logprob_chunk_size
        if chunk is not None and (chunk == 0 or chunk < -1):
            raise _bad("logprob_chunk_size", chunk, "must be at least 1, or -1 for off")
        self._check_groups()
        if self.enable_lora and self.max_lora_rank is None:
            raise FlagError(
                "--enable-lora needs --max-lora-rank (the pool is sized by it, whatever is loaded)",
                flag="max_lora_rank",
            )

    def _check_groups(self) -> None:
        if self.enable_dp_attention and self.tp_size % self.dp_size:
            raise FlagError(
                f"--enable-dp-attention: --dp-size {self.dp_size} does not divide --tp-size {self.tp_size}",
                flag="dp_size",
                value=self.dp_size,
            )
        if self.tp_size % self.ep_size:
            raise FlagError(
                f"--ep-size {self.ep_size} does not divide --tp-size {self.tp_size}",
                flag="ep_size",
                value=self.ep_size,
            )
        if self.attn_tp % self.dcp_size:
            raise FlagError(
                f"--dcp-size {self.dcp_size} does not divide the {self.attn_tp} ranks of an attention group",
                flag="dcp_size",
                value=self.dcp_size,
            )
        if self.moe_dense_tp_size not in (None, 1):
            raise _bad("moe_dense_tp_size", self.moe_dense_tp_size, "must be 1 where it is given")
        if self.attention_backend is not None and self.attention_backend not in ATTENTION_BACKENDS:
            raise _bad(
                "attention_backend", self.attention_backend, f"is one of {', '.join(ATTENTION_BACKENDS)}"
            )
        if self.moe_a2a_backend not in A2A_BACKENDS:
            raise _bad("moe_a2a_backend", self.moe_a2a_backend, f"is one of {', '.join(A2A_BACKENDS)}")
        if self.deepep_mode not in DEEPEP_MODES:
            raise _bad("deepep_mode", self.deepep_mode, f"is one of {', '.join(DEEPEP_MODES)}")
        if self.ep_num_redundant_experts and self.ep_size == 1 and self.moe_a2a_backend == "none":
            raise FlagError(
                "--ep-num-redundant-experts needs --ep-size above 1",
                flag="ep_num_redundant_experts",
                value=self.ep_num_redundant_experts,
            )

    @property
    def spans_experts(self) -> bool:
        """Whether an all-to-all carries tokens to experts, which sets `--ep-size` to `--tp-size`."""
        return self.moe_a2a_backend != "none"

    @property
    def attn_dp(self) -> int:
        """Attention groups in one tensor-parallel group."""
        return self.dp_size if self.enable_dp_attention else 1

    @property
    def attn_tp(self) -> int:
        """Ranks that share the heads of a layer."""
        return self.tp_size // self.attn_dp

    @property
    def replicas(self) -> int:
        """Copies of the whole model: dp without DP attention."""
        return 1 if self.enable_dp_attention else self.dp_size

    @property
    def draft_tokens(self) -> int:
        """Tokens a verification step takes for one request, 0 without speculation.

        What a version picks by itself where nothing is given is EAGLE's 4 (arg_groups/speculative_hook.py).
        """
        if self.speculative_algorithm is None:
            return 0
        if self.speculative_num_draft_tokens is not None:
            return self.speculative_num_draft_tokens
        return (self.speculative_num_steps or 3) + 1

    @property
    def has_draft_model(self) -> bool:
        return self.speculative_algorithm not in (None, "NGRAM")

    @property
    def overlap(self) -> bool:
        """Whether a step is scheduled while another runs."""
        return not self.disable_overlap_schedule


_GROUPS = ("tp_size", "dp_size", "pp_size", "ep_size", "dcp_size")
_POSITIVE = (
    "max_total_tokens", "max_running_requests", "max_prefill_tokens", "context_length", "page_size",
    "cuda_graph_max_bs", "max_mamba_cache_size", "max_loras_per_batch", "max_lora_rank", "speculative_num_steps",
    "speculative_eagle_topk", "speculative_num_draft_tokens", "draft_layers",
    "deepep_num_max_dispatch_tokens_per_rank", "eplb_rebalance_num_iterations",
)  # fmt: skip
_NOT_NEGATIVE = ("ep_num_redundant_experts", "hicache_size")
