"""vLLM's flags under vLLM's own names; None is "not given"."""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.option import against_rule as _bad
from vramledger.engines.requests import NO_REQUESTS, Requests
from vramledger.errors import FlagError
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.checkpoint import Checkpoint


class ParallelPlan(Struct, frozen=True, kw_only=True):
    """Sizes of the parallel groups of one engine; `dp` counts data-parallel replicas."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    pcp: int = 1
    enable_expert_parallel: bool = False

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "dcp", "pcp"):
            size = getattr(self, name)
            if not 1 <= size <= 4096:
                raise FlagError(f"--{name} is {size}, outside 1 to 4096", flag=name, value=size)
        if self.tp % self.dcp and (self.pcp == 1 or self.dcp not in (self.pcp, self.tp * self.pcp)):
            raise FlagError(
                f"--decode-context-parallel-size {self.dcp} does not divide --tp {self.tp}",
                flag="decode_context_parallel_size",
                value=self.dcp,
            )

    @property
    def world_size(self) -> int:
        """Ranks of one replica."""
        return self.tp * self.pcp * self.pp

    @property
    def expert_group(self) -> int:
        """Ranks the experts of a layer are spread over (FusedMoEParallelConfig: dp x pcp x tp flattened)."""
        return self.dp * self.pcp * self.tp

    @property
    def ep(self) -> int:
        return self.expert_group if self.enable_expert_parallel else 1


class Speculation(Struct, frozen=True, kw_only=True):
    """`--speculative-config`: the method, how many tokens it drafts, and the draft's own checkpoint if it has one.

    `method` is mtp, eagle, eagle3, medusa, mlp_speculator, draft_model, ngram, ngram_gpu or suffix. What is None
    is the target's, or for `attention_backend` the engine's own choice.
    """

    method: str
    num_speculative_tokens: int
    draft: Checkpoint | None = None
    draft_tensor_parallel_size: int | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    attention_backend: str | None = None
    moe_backend: str | None = None
    max_model_len: int | None = None
    probabilistic: bool = False

    def __post_init__(self) -> None:
        if self.num_speculative_tokens < 1:
            raise FlagError(
                f"num_speculative_tokens is {self.num_speculative_tokens}; it must be at least 1",
                flag="speculative_config",
                value=self.num_speculative_tokens,
            )

    def __str__(self) -> str:
        model = "" if self.draft is None else f" of {self.draft.model.id}"
        return f"{self.method}{model}, {self.num_speculative_tokens} tokens"


class KvTransfer(Struct, frozen=True, kw_only=True):
    """One connector of `--kv-transfer-config`: its role, where and how large it buffers, and the numbers among its
    own settings. `children` are those of a MultiConnector."""

    connector: str
    role: str
    buffer_device: str | None = None
    buffer_size_bytes: int | None = None
    permutes: bool = False
    numbers: tuple[tuple[str, float], ...] = ()
    children: tuple[KvTransfer, ...] = ()

    def number(self, name: str) -> float | None:
        """One of the connector's own settings."""
        return dict(self.numbers).get(name)

    def __str__(self) -> str:
        return " + ".join(f"{item.connector} as {item.role}" for item in (self.children or (self,)))


class LoadBalancing(Struct, frozen=True, kw_only=True):
    """What `--eplb-config` says beside the redundant experts; None is the version's own choice."""

    window_size: int | None = None
    communicator: str | None = None
    use_async: bool | None = None

    def __str__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return ", ".join(f"{name} {value}" for name, value in shown.items() if value is not None)


class VllmFlags(Struct, frozen=True, kw_only=True):
    """What the command line said. `adapter` are adapters read from their files, hot ones first; `offline` is the `LLM` class instead of `vllm serve`;
    `use_v1` overrides which engine generation a version that has both would pick (VLLM_USE_V1),
    `use_flashinfer_sampler` is VLLM_USE_FLASHINFER_SAMPLER; `requests` are no flags but what is asked of the engine."""

    max_model_len: int | None = None
    allow_long_max_model_len: bool = False
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    async_scheduling: bool | None = None
    scheduling_policy: str | None = None
    long_prefill_token_threshold: int | None = None
    scheduler_reserve_full_isl: bool | None = None
    max_cudagraph_capture_size: int | None = None
    enable_lora: bool = False
    adapter: tuple[Adapter, ...] = ()
    max_loras: int | None = None
    max_lora_rank: int | None = None
    max_cpu_loras: int | None = None
    fully_sharded_loras: bool = False
    lora_dtype: str = "auto"
    lora_extra_vocab_size: int | None = None
    lora_target_modules: tuple[str, ...] | None = None
    specialize_active_lora: bool = False
    speculative: Speculation | None = None
    all2all_backend: str | None = None
    enable_eplb: bool = False
    num_redundant_experts: int = 0
    eplb_window_size: int | None = None
    eplb_config: LoadBalancing | None = None
    kv_transfer_config: KvTransfer | None = None
    kv_offloading_size: float | None = None
    kv_offloading_backend: str | None = None
    swap_space: float | None = None
    cpu_offload_gb: float = 0
    cpu_offload_params: str | None = None
    offload_backend: str | None = None
    offload_group_size: int = 0
    offload_num_in_group: int = 1
    offload_prefetch_step: int = 1
    offload_params: str | None = None
    cp_kv_cache_interleave_size: int | None = None
    dcp_kv_cache_interleave_size: int | None = None
    dcp_comm_backend: str | None = None
    mamba_cache_mode: str | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mm_encoder_tp_mode: str = "weights"
    language_model_only: bool = False
    pp_layer_partition: tuple[int, ...] | None = None
    attention_backend: str | None = None
    moe_backend: str | None = None
    use_flashinfer_sampler: bool | None = None
    max_logprobs: int | None = None
    logprobs_mode: str = "raw_logprobs"
    enable_prompt_embeds: bool = False
    load_format: str = "auto"
    safetensors_load_strategy: str | None = None
    model_loader_extra_config: tuple[tuple[str, object], ...] = ()
    requests: Requests = NO_REQUESTS
    offline: bool = False
    use_v1: bool | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _bad(name, value, "must be at least 1")
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise _bad(name, value, "must not be negative")
        for name in _GIBIBYTES:
            value = getattr(self, name)
            if value is not None and value > MOST_GIB:
                raise _bad(name, value, f"must be at most {MOST_GIB}")
        if self.max_model_len is not None and self.max_model_len != AUTO and self.max_model_len < 1:
            raise _bad("max_model_len", self.max_model_len, "must be at least 1, or auto")
        util = self.gpu_memory_utilization
        if util is not None and not 0 < util <= 1:
            raise _bad("gpu_memory_utilization", util, "must be above 0 and at most 1")
        if self.kv_cache_memory_bytes is not None and self.num_gpu_blocks_override is not None:
            raise FlagError(
                "--kv-cache-memory-bytes and --num-gpu-blocks-override both size the pool; give one",
                flag="kv_cache_memory_bytes",
                value=self.kv_cache_memory_bytes,
            )
        if self.max_lora_rank is not None and self.max_lora_rank not in LORA_RANKS:
            raise _bad(
                "max_lora_rank", self.max_lora_rank, f"must be one of {', '.join(map(str, LORA_RANKS))}"
            )
        if self.mm_encoder_tp_mode not in {"weights", "data"}:
            raise _bad("mm_encoder_tp_mode", self.mm_encoder_tp_mode, "must be weights or data")
        if self.mamba_cache_mode not in {None, "none", "align", "all"}:
            raise _bad("mamba_cache_mode", self.mamba_cache_mode, "must be none, align or all")


AUTO = -1
MOST_GIB = 2**20
_GIBIBYTES = ("kv_offloading_size", "swap_space", "cpu_offload_gb")
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_POSITIVE = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "block_size",
    "max_loras",
    "eplb_window_size",
    "max_cpu_loras",
    "offload_num_in_group",
    "offload_prefetch_step",
    "cp_kv_cache_interleave_size",
    "dcp_kv_cache_interleave_size",
)
_NOT_NEGATIVE = (
    "num_redundant_experts",
    "max_cudagraph_capture_size",
    "lora_extra_vocab_size",
    "kv_offloading_size",
    "swap_space",
    "cpu_offload_gb",
    "offload_group_size",
)
