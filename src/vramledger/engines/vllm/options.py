"""vLLM's command line: every flag of `VllmFlags` and `ParallelPlan` under vLLM's own name.

Source: vllm engine/arg_utils.py, config/ (names, units, `--no-` forms).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from vramledger.engines.adapter_slots import read_adapters
from vramledger.engines.option import Option, OptionKind, bad_value, read_value, unknown_flag
from vramledger.engines.option import option as _option
from vramledger.engines.requests import REQUEST_NAMES, REQUEST_OPTIONS, requests_of
from vramledger.engines.vllm.expert_parallel import BACKEND_NAMES
from vramledger.engines.vllm.flags import ParallelPlan, Speculation, VllmFlags
from vramledger.errors import FlagError

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.models.checkpoint import Checkpoint

_PARALLEL, _BATCH, _MEMORY, _TYPES, _CACHE, _RUN, _LOAD, _LORA, _OTHER = (
    "Parallelism",
    "Context and batch",
    "Memory",
    "Formats",
    "KV cache",
    "Execution",
    "Loading",
    "LoRA",
    "Speculation, experts, modalities",
)
COUNT, SWITCH, TEXT = OptionKind.COUNT, OptionKind.SWITCH, OptionKind.TEXT


_MAMBA_DTYPES = ("auto", "float16", "bfloat16", "float32")

OPTIONS: tuple[Option, ...] = (
    _option("tensor_parallel_size", COUNT, _PARALLEL, "Ranks a layer is cut over.", "--tp", "-tp"),
    _option("pipeline_parallel_size", COUNT, _PARALLEL, "Stages of layers.", "--pp", "-pp"),
    _option("data_parallel_size", COUNT, _PARALLEL, "Replicas of the engine.", "--dp", "-dp"),
    _option(
        "enable_expert_parallel", SWITCH, _PARALLEL, "Spread whole experts over ranks (tp x dp).", "--ep", "-ep"
    ),
    _option(
        "decode_context_parallel_size", COUNT, _PARALLEL, "Ranks of a tp group that share the KV of a context.",
        "--dcp", "-dcp",
    ),
    _option(
        "prefill_context_parallel_size", COUNT, _PARALLEL, "Ranks a prompt is cut over.", "--pcp", "-pcp"
    ),
    _option(
        "pp_layer_partition", OptionKind.COUNTS, _PARALLEL,
        "Layers of each stage, as VLLM_PP_LAYER_PARTITION has them.",
    ),
    _option(
        "max_model_len", OptionKind.COUNT_OR_AUTO, _BATCH,
        "Context length: 32768, 32k (32000), 32K (32768), or auto for the longest that fits.",
    ),
    _option(
        "allow_long_max_model_len", SWITCH, _BATCH,
        "A context above the config's limit, as VLLM_ALLOW_LONG_MAX_MODEL_LEN.",
    ),
    _option("max_num_seqs", COUNT, _BATCH, "Sequences in one step at most."),
    _option("max_num_batched_tokens", COUNT, _BATCH, "Tokens in one step at most."),
    _option("enable_chunked_prefill", SWITCH, _BATCH, "Cut long prompts over steps."),
    _option(
        "gpu_memory_utilization", OptionKind.NUMBER, _MEMORY, "Share of the device the engine may take, 0 to 1."
    ),
    _option(
        "kv_cache_memory_bytes", COUNT, _MEMORY, "KV cache bytes a rank (8G is 8 GiB); replaces the share.",
        "--kv-cache-memory",
    ),
    _option("num_gpu_blocks_override", COUNT, _MEMORY, "KV blocks, whatever was profiled."),
    _option(
        "dtype", TEXT, _TYPES, "Type the model runs in.",
        choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
    ),
    _option("quantization", TEXT, _TYPES, "Method the weights are loaded with.", "-q"),
    _option("kv_cache_dtype", TEXT, _TYPES, "Type of the KV cache: auto, fp8, fp8_e4m3, nvfp4, bfloat16, ..."),
    _option("mamba_cache_dtype", TEXT, _TYPES, "Type of convolution states.", choices=_MAMBA_DTYPES),
    _option("mamba_ssm_cache_dtype", TEXT, _TYPES, "Type of recurrent states.", choices=_MAMBA_DTYPES),
    _option("block_size", COUNT, _CACHE, "Tokens in a KV block."),
    _option("enable_prefix_caching", SWITCH, _CACHE, "Keep blocks of prefixes for reuse."),
    _option(
        "disable_hybrid_kv_cache_manager", SWITCH, _CACHE, "Give windowed layers as many blocks as full ones."
    ),
    _option("mamba_cache_mode", TEXT, _CACHE, "Which recurrent states stay.", choices=("none", "align", "all")),
    _option("enforce_eager", SWITCH, _RUN, "No CUDA graphs."),
    _option("max_cudagraph_capture_size", COUNT, _RUN, "Largest batch captured as a graph."),
    _option("async_scheduling", SWITCH, _RUN, "Schedule the next step while one runs."),
    _option(
        "scheduling_policy", TEXT, _RUN, "Order of the queue: arrival, or priority (smallest first).",
        choices=("fcfs", "priority"),
    ),
    _option("long_prefill_token_threshold", COUNT, _RUN, "Most tokens of one prompt that a step computes."),
    _option(
        "scheduler_reserve_full_isl", SWITCH, _RUN,
        "Admit a request only if its whole prompt has room (0.19 and newer).",
    ),
    _option("attention_backend", TEXT, _RUN, "Attention backend by vLLM's name."),
    _option("moe_backend", TEXT, _RUN, "Kernels of the experts by vLLM's name."),
    _option(
        "use_flashinfer_sampler", SWITCH, _RUN,
        "FlashInfer's top-k and top-p instead of a sort, as VLLM_USE_FLASHINFER_SAMPLER.",
    ),
    _option("max_logprobs", OptionKind.SIGNED, _RUN, "Log-probabilities a request may ask for; -1: all."),
    _option(
        "logprobs_mode", TEXT, _RUN, "What log-probabilities are made of.",
        choices=("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"),
    ),
    _option("enable_prompt_embeds", SWITCH, _RUN, "Prompts may be given as embeddings."),
    _option("load_format", TEXT, _LOAD, "How weight files are read: auto, fastsafetensors, runai_streamer, ..."),
    _option(
        "safetensors_load_strategy", TEXT, _LOAD, "Mapped files, whole ones, or the page cache filled ahead.",
        choices=("lazy", "eager", "prefetch", "torchao"),
    ),
    _option(
        "model_loader_extra_config", OptionKind.JSON, _LOAD,
        'Reader: \'{"memory_limit": 5368709120}\' of runai_streamer, \'{"num_threads": 8}\', ...',
    ),
    _option("offline", SWITCH, _RUN, "Defaults of the LLM class instead of the server's."),
    _option("use_v1", SWITCH, _RUN, "Engine generation where a version has both, as VLLM_USE_V1."),
    _option("enable_lora", SWITCH, _LORA, "Reserve slots for LoRA adapters."),
    _option(
        "adapter", OptionKind.TEXTS, _LORA,
        "A LoRA adapter (folder, file or hub id) that is served; may be given more than once. Sets slots and rank.",
    ),
    _option("max_loras", COUNT, _LORA, "Adapters in one batch."),
    _option("max_lora_rank", COUNT, _LORA, "Largest rank of an adapter."),
    _option("max_cpu_loras", COUNT, _LORA, "Adapters kept in host memory."),
    _option("fully_sharded_loras", SWITCH, _LORA, "Cut both LoRA matrices over ranks."),
    _option(
        "lora_dtype", TEXT, _LORA, "Type of the slots.", choices=("auto", "float16", "bfloat16", "float32")
    ),
    _option("lora_extra_vocab_size", COUNT, _LORA, "Tokens an adapter may add, up to 0.11."),
    _option("lora_target_modules", OptionKind.TEXTS, _LORA, "A module that gets slots; may be given more than once."),
    _option("specialize_active_lora", SWITCH, _LORA, "Graphs for several numbers of active adapters."),
    _option(
        "speculative_config", OptionKind.JSON, _OTHER,
        'Draft: \'{"method": "eagle3", "model": "PATH or hub id", "num_speculative_tokens": 3}\'; "mtp" needs no model.',
    ),
    _option(
        "kv_transfer_config", OptionKind.JSON, _CACHE,
        'Moving KV: \'{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}\'.',
    ),
    _option("kv_offloading_size", OptionKind.NUMBER, _CACHE, "GiB of host memory for KV, over all ranks."),
    _option(
        "kv_offloading_backend", TEXT, _CACHE, "Who keeps KV in host memory.", choices=("native", "lmcache")
    ),
    _option("swap_space", OptionKind.NUMBER, _CACHE, "GiB a rank for preempted sequences (V0)."),
    _option(
        "cp_kv_cache_interleave_size", COUNT, _CACHE, "Tokens in a row on one rank that shares a context's KV."
    ),
    _option("dcp_kv_cache_interleave_size", COUNT, _CACHE, "The same under its older name."),
    _option(
        "dcp_comm_backend", TEXT, _PARALLEL, "How ranks that share a context merge attention.",
        choices=("ag_rs", "a2a"),
    ),
    _option("cpu_offload_gb", OptionKind.NUMBER, _MEMORY, "GiB of a rank's weights kept in host memory."),
    _option("cpu_offload_params", TEXT, _MEMORY, "Name segments of the weights that may go there: experts, mlp."),
    _option(
        "offload_backend", TEXT, _MEMORY, "How weights come from host memory.", choices=("auto", "uva", "prefetch")
    ),
    _option("offload_group_size", COUNT, _MEMORY, "Layers in a group of which the last are kept in host memory."),
    _option("offload_num_in_group", COUNT, _MEMORY, "How many of a group those are."),
    _option("offload_prefetch_step", COUNT, _MEMORY, "Layers fetched ahead."),
    _option("offload_params", TEXT, _MEMORY, "Name segments of the weights of those layers."),
    _option(
        "all2all_backend", TEXT, _OTHER, "How tokens reach experts of other ranks, by vLLM's name.",
        choices=BACKEND_NAMES,
    ),
    _option("enable_eplb", SWITCH, _OTHER, "Balance the load of experts over ranks."),
    _option(
        "eplb_config", OptionKind.JSON, _OTHER,
        'Load balancing: \'{"num_redundant_experts": 32, "window_size": 1000, "communicator": "nixl"}\'.',
    ),
    _option("eplb_window_size", COUNT, _OTHER, "Steps of load that are kept."),
    _option("num_redundant_experts", OptionKind.SIGNED, _OTHER, "Extra copies of experts for load balance."),
    _option(
        "limit_mm_per_prompt", OptionKind.JSON, _OTHER,
        'Items a prompt: \'{"image": 0, "video": 0}\'. All of them 0 is --language-model-only.',
    ),
    _option("language_model_only", SWITCH, _OTHER, "Load no encoder of other modalities."),
    _option(
        "mm_encoder_tp_mode", TEXT, _OTHER, "Encoder cut over ranks by weights, or whole with data cut.",
        choices=("weights", "data"),
    ),
    *REQUEST_OPTIONS,
)  # fmt: skip

_SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "ep": "enable_expert_parallel",
    "dcp": "decode_context_parallel_size",
    "pcp": "prefill_context_parallel_size",
}
_PARALLEL_FIELDS = {long: short for short, long in _SHORT.items()} | {
    "enable_expert_parallel": "enable_expert_parallel"
}
_BY_NAME = {option.name: option for option in OPTIONS}
_MODALITIES = ("image", "video", "audio", "vision_chunk")


def plan_with(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """The plan of one vLLM instance under flags by name; see `engines.Engine`."""
    parallel, flags = read_flags(values)
    from vramledger.engines.vllm.names import check_flags
    from vramledger.engines.vllm.planner import plan
    from vramledger.engines.vllm.version import NEWEST, parse_version

    asked = NEWEST if version is None else parse_version(version)
    check_flags((_SHORT.get(name, name) for name, value in values.items() if value is not None), asked)
    return plan(
        checkpoint,
        device,
        version=asked,
        parallel=parallel,
        flags=flags,
        concurrency=concurrency,
        remedies=remedies,
    )


def read_flags(values: Mapping[str, object]) -> tuple[ParallelPlan, VllmFlags]:
    """Flags by name (`tp` and the like also short), as text or as values; None is not given.

    Raises FlagError for an unknown name with the closest ones, and for a value that its flag does not take.
    """
    parallel: dict[str, Any] = {}
    flags: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for given, value in values.items():
        if value is None:
            continue
        name = _SHORT.get(given, given)
        if name == "speculative" and isinstance(value, Speculation):
            flags[name] = value
            continue
        if name == "adapter":
            flags[name] = read_adapters(_BY_NAME[name], value)
            continue
        option = _BY_NAME.get(name)
        if option is None:
            raise unknown_flag(given, [*_BY_NAME, *_SHORT], "vllm")
        read = read_value(option, value)
        if name in _PARALLEL_FIELDS:
            field = _PARALLEL_FIELDS[name]
            if parallel.setdefault(field, read) != read:
                raise FlagError(
                    f"{option.flag} is given as {parallel[field]} and as {read}", flag=name, value=read
                )
        elif name in REQUEST_NAMES:
            requests[name] = read
        elif name == "model_loader_extra_config":
            flags[name] = tuple(sorted(cast(Mapping[str, object], read).items()))
        elif name == "speculative_config":
            from vramledger.engines.vllm.speculative_config import read_speculation

            flags["speculative"] = read_speculation(option, cast(Mapping[str, object], read))
        elif name == "eplb_config":
            from vramledger.engines.vllm.eplb import read_eplb_config

            _take(flags, read_eplb_config(option, cast(Mapping[str, object], read)), option)
        elif name == "kv_transfer_config":
            from vramledger.engines.vllm.kv_connectors import read_kv_transfer

            flags[name] = read_kv_transfer(option, cast(Mapping[str, object], read))
        elif name == "limit_mm_per_prompt":
            if _no_items(option, read):
                flags["language_model_only"] = True
        else:
            _take(flags, {name: read}, option)
    if requests:
        flags["requests"] = requests_of(requests)
    return ParallelPlan(**parallel), VllmFlags(**flags)


def _no_items(option: Option, value: Any) -> bool:
    """Whether every modality that is named is limited to no item.

    A limit above 0 is not used: the encoder batch of the profile run is bounded by tokens before this count
    bounds it, unless only a few sequences run at once.
    """
    limits: Mapping[str, Any] = value
    for modality, limit in limits.items():
        count = limit.get("count", 1) if isinstance(limit, Mapping) else limit
        if modality not in _MODALITIES:
            raise bad_value(option, value, f"names {modality!r}, not one of {', '.join(_MODALITIES)}")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise bad_value(option, value, f"limits {modality} to something that is not a whole number")
    return bool(limits) and all(
        (limit.get("count", 1) if isinstance(limit, Mapping) else limit) == 0 for limit in limits.values()
    )


def _take(flags: dict[str, Any], found: Mapping[str, Any], option: Option) -> None:
    """Put fields among the flags; one that another flag has set otherwise is a contradiction."""
    for field, value in found.items():
        if flags.setdefault(field, value) != value:
            raise FlagError(
                f"{option.flag} gives {field} {value}, another flag {flags[field]}",
                flag=option.name,
                value=str(value),
            )
