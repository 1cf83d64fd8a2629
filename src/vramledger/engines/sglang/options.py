"""SGLang's command line: every flag of `SglangFlags` under SGLang's own name.

Source: sglang srt/server_args.py and, from 0.5.19 on, srt/arg_groups/fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramledger.engines.adapter_slots import read_adapters
from vramledger.engines.option import Option, OptionKind, bad_value, read_value, unknown_flag
from vramledger.engines.option import option as _option
from vramledger.engines.requests import REQUEST_OPTIONS, take_requests
from vramledger.engines.sglang.flags import ALGORITHMS, LORA_MODULES, NORMALISED, SglangFlags
from vramledger.errors import FlagError

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.models.adapters.adapter import Adapter
    from vramledger.models.checkpoint import Checkpoint

_PARALLEL, _MEMORY, _BATCH, _TYPES, _CACHE, _RUN, _LORA, _DRAFT, _HOST, _LOAD = (
    "Parallelism",
    "Memory",
    "Context and batch",
    "Formats",
    "KV cache",
    "Execution",
    "LoRA",
    "Speculation",
    "Host and disaggregation",
    "Loading",
)
COUNT, SWITCH, TEXT, NUMBER = OptionKind.COUNT, OptionKind.SWITCH, OptionKind.TEXT, OptionKind.NUMBER


OPTIONS: tuple[Option, ...] = (
    _option("tp_size", COUNT, _PARALLEL, "Ranks a layer is cut over.", "--tp", "--tensor-parallel-size"),
    _option("pp_size", COUNT, _PARALLEL, "Stages of layers.", "--pp", "--pipeline-parallel-size"),
    _option(
        "dp_size", COUNT, _PARALLEL, "Replicas, or attention groups inside tp with --enable-dp-attention.",
        "--dp", "--data-parallel-size",
    ),
    _option("ep_size", COUNT, _PARALLEL, "Ranks the experts are dealt to.", "--ep", "--expert-parallel-size"),
    _option("dcp_size", COUNT, _PARALLEL, "Ranks of an attention group that share the KV of a context."),
    _option("enable_dp_attention", SWITCH, _PARALLEL, "Attention by groups of tp / dp ranks, MLPs over all."),
    _option("enable_dp_lm_head", SWITCH, _PARALLEL, "The head too is cut inside attention groups."),
    _option("moe_dense_tp_size", COUNT, _PARALLEL, "1 keeps dense MLPs of a mixture of experts whole."),
    _option("moe_a2a_backend", TEXT, _PARALLEL, "All-to-all of the experts: none, deepep, mooncake, ..."),
    _option("deepep_mode", TEXT, _PARALLEL, "DeepEP's kernels; auto holds the buffers of both."),
    _option(
        "deepep_num_max_dispatch_tokens_per_rank", COUNT, _PARALLEL,
        "Tokens a rank dispatches at once, as SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK.",
    ),
    _option("enable_eplb", SWITCH, _PARALLEL, "Experts are placed anew by their load."),
    _option("eplb_rebalance_num_iterations", COUNT, _PARALLEL, "Steps whose load is kept before experts move."),
    _option("ep_num_redundant_experts", OptionKind.SIGNED, _PARALLEL, "Extra copies of experts for load balance."),
    _option(
        "pp_layer_partition", OptionKind.COUNTS, _PARALLEL,
        "Layers of each stage, as SGLANG_PP_LAYER_PARTITION has them.",
    ),
    _option("mem_fraction_static", NUMBER, _MEMORY, "Share of free memory for weights and pools, 0 to 1."),
    _option("max_total_tokens", COUNT, _MEMORY, "Tokens in the pool at most."),
    _option(
        "enable_post_capture_kv_sizing", SWITCH, _MEMORY,
        "Size the pool after graph capture, as SGLANG_ENABLE_POST_CAPTURE_KV_SIZING.",
    ),
    _option(
        "expandable_segments", SWITCH, _MEMORY,
        "Segments that grow, as PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
    _option("context_length", COUNT, _BATCH, "Tokens a request may have."),
    _option("max_running_requests", COUNT, _BATCH, "Requests that run at once, over all attention groups."),
    _option("chunked_prefill_size", OptionKind.SIGNED, _BATCH, "Tokens of a prompt in one step; -1 for off."),
    _option("max_prefill_tokens", COUNT, _BATCH, "Prompt tokens of all requests in one step."),
    _option(
        "logprob_chunk_size", OptionKind.SIGNED, _BATCH,
        "Prompt tokens whose log-probabilities are computed at once, as SGLANG_LOGPROB_CHUNK_SIZE; -1 for all.",
    ),
    _option(
        "dtype", TEXT, _TYPES, "Type the model runs in.",
        choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
    ),
    _option("quantization", TEXT, _TYPES, "Method the weights are loaded with."),
    _option("kv_cache_dtype", TEXT, _TYPES, "Type of the KV cache: auto, fp8_e4m3, fp8_e5m2, bf16, mxfp8, nvfp4, ..."),
    _option("mamba_ssm_dtype", TEXT, _TYPES, "Type of recurrent states.", choices=("float32", "bfloat16", "float16")),
    _option("page_size", COUNT, _CACHE, "Tokens in a page; some attention backends force theirs."),
    _option("disable_radix_cache", SWITCH, _CACHE, "Keep no prefixes for reuse."),
    _option("swa_full_tokens_ratio", NUMBER, _CACHE, "Tokens of windowed layers' pool for one of the full pool's."),
    _option("disable_hybrid_swa_memory", SWITCH, _CACHE, "Give windowed layers as many tokens as full ones."),
    _option("mamba_full_memory_ratio", NUMBER, _CACHE, "Memory of recurrent states for that of full KV."),
    _option("max_mamba_cache_size", COUNT, _CACHE, "Slots for recurrent states."),
    _option(
        "mamba_radix_cache_strategy", TEXT, _CACHE, "How recurrent states are kept for prefixes.",
        "--mamba-scheduler-strategy", choices=("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"),
    ),
    _option("attention_backend", TEXT, _RUN, "Attention backend by SGLang's name."),
    _option("cuda_graph_max_bs", COUNT, _RUN, "Largest decode batch captured as a graph."),
    _option("disable_cuda_graph", SWITCH, _RUN, "No CUDA graphs."),
    _option("disable_prefill_cuda_graph", SWITCH, _RUN, "No graphs of prefill.", "--disable-piecewise-cuda-graph"),
    _option("disable_overlap_schedule", SWITCH, _RUN, "Schedule a step only when the one before is done."),
    _option("enable_lora", SWITCH, _LORA, "Reserve the LoRA pool."),
    _option(
        "adapter", OptionKind.TEXTS, _LORA,
        "A LoRA adapter (folder, file or hub id) that is served; may be given more than once. Sets rank and modules.",
    ),
    _option("max_loras_per_batch", COUNT, _LORA, "Adapters in one batch."),
    _option("max_lora_rank", COUNT, _LORA, "Largest rank of an adapter."),
    _option(
        "lora_target_modules", TEXT, _LORA, f"Modules with adapters, comma between: all, {', '.join(LORA_MODULES)}."
    ),
    _option("speculative_algorithm", TEXT, _DRAFT, "Draft method.", choices=ALGORITHMS),
    _option("speculative_num_steps", COUNT, _DRAFT, "Steps of the draft."),
    _option("speculative_eagle_topk", COUNT, _DRAFT, "Branches a step of the draft keeps."),
    _option("speculative_num_draft_tokens", COUNT, _DRAFT, "Tokens verified at once."),
    _option("draft_layers", COUNT, _DRAFT, "Layers of the draft's own checkpoint (1 where not given; not a flag of SGLang's)."),
    _option("enable_hierarchical_cache", SWITCH, _HOST, "Keep a second KV cache in host memory."),
    _option("hicache_ratio", NUMBER, _HOST, "Tokens of the host's cache for one of the device's."),
    _option("hicache_size", OptionKind.SIGNED, _HOST, "GB (10^9) of the host's cache of one rank; replaces the ratio."),
    _option(
        "disaggregation_mode", TEXT, _HOST, "Role of a server that only prefills or only decodes.",
        choices=("null", "prefill", "decode"),
    ),
    _option("language_only", SWITCH, _HOST, "Load no encoder of other modalities.", "--language-model-only"),
    _option("load_format", TEXT, _LOAD, "How weight files are read: auto, pt, dummy, fastsafetensors, runai_streamer, ..."),
    _option(
        "model_loader_extra_config", OptionKind.JSON, _LOAD,
        'Of the loader: \'{"num_threads": 4}\', \'{"enable_multithread_load": false}\', \'{"memory_limit": 8589934592}\'.',
    ),
    _option("weight_loader_disable_mmap", SWITCH, _LOAD, "Read files whole instead of mapping them."),
    _option("weight_loader_prefetch_checkpoints", SWITCH, _LOAD, "Read every file into the page cache first."),
    *(option for option in REQUEST_OPTIONS if option.name != "prompt_embeds"),
)  # fmt: skip

_SHORT = {"tp": "tp_size", "pp": "pp_size", "dp": "dp_size", "ep": "ep_size", "dcp": "dcp_size"}
_BY_NAME = {option.name: option for option in OPTIONS}


def plan_with(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """The plan of one SGLang instance under flags by name; see `engines.Engine`."""
    flags = read_flags(values)
    from vramledger.engines.sglang.planner import plan
    from vramledger.engines.sglang.version import NEWEST, parse_version

    return plan(
        checkpoint,
        device,
        version=NEWEST if version is None else parse_version(version),
        flags=flags,
        concurrency=concurrency,
        remedies=remedies,
    )


def read_flags(values: Mapping[str, object]) -> SglangFlags:
    """Flags by name (`tp` and the like also short), as text or as values; None is not given.

    Raises FlagError for an unknown name with the closest ones, and for a value that its flag does not take.
    """
    flags: dict[str, Any] = {}
    adapters: tuple[Adapter, ...] = ()
    for given, value in values.items():
        if value is None:
            continue
        name = _SHORT.get(given, given)
        if name == "adapter":
            adapters = read_adapters(_BY_NAME[name], value)
            continue
        option = _BY_NAME.get(name)
        if option is None:
            raise unknown_flag(given, [*_BY_NAME, *_SHORT], "sglang")
        read = _read(option, value)
        if flags.setdefault(name, read) != read:
            raise FlagError(f"{option.flag} is given as {flags[name]} and as {read}", flag=name, value=read)
    take_requests(flags)
    return SglangFlags(**(_settled(flags, adapters) if adapters else flags))


def _settled(flags: dict[str, Any], adapters: tuple[Adapter, ...]) -> dict[str, Any]:
    """Flags with what the named adapters set where nothing else does: the pool, its rank, its modules."""
    modules = {
        NORMALISED.get(name, name)
        for adapter in adapters
        for name in (end.rpartition(".")[2] for end in adapter.config.target_modules)
    }
    whole = any(adapter.config.target_pattern for adapter in adapters)
    known = tuple(name for name in LORA_MODULES if name in modules)
    defaults = {
        "enable_lora": True,
        "max_lora_rank": max(adapter.config.largest_rank for adapter in adapters),
        "lora_target_modules": ("all",) if whole or not known else known,
    }
    return {**defaults, **flags, "adapter": adapters, "enable_lora": True}


def _read(option: Option, value: object) -> object:
    if option.name == "ep_size" and value is True:
        raise bad_value(option, value, "is a number of ranks in sglang, such as --ep-size 8")
    if option.name == "model_loader_extra_config":
        return _loader_config(option, read_value(option, value))
    if option.name != "lora_target_modules":
        return read_value(option, value)
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    names = tuple(part.strip() for part in str(read_value(option, text)).split(",") if part.strip())
    unknown = [name for name in names if name not in ("all", *LORA_MODULES)]
    if unknown or not names:
        raise bad_value(
            option, value, f"names {unknown or 'nothing'}, not all or some of {', '.join(LORA_MODULES)}"
        )
    return names


_LOADER_KEYS: dict[str, tuple[type, int]] = {
    "enable_multithread_load": (bool, 0),
    "num_threads": (int, 1),
    "memory_limit": (int, -1),
    "concurrency": (int, 1),
    "distributed": (bool, 0),
    "enable_gds": (bool, 0),
}


def _loader_config(option: Option, value: Any) -> tuple[tuple[str, object], ...]:
    """Keys of the loader with values of their types, in order."""
    given: Mapping[str, object] = value
    for key, found in given.items():
        kind, least = _LOADER_KEYS.get(key, (None, 0))
        if kind is None:
            raise bad_value(option, key, f"has {key!r}, not one of {', '.join(_LOADER_KEYS)}")
        if type(found) is not kind or (isinstance(found, int) and found < least):
            rule = "true or false" if kind is bool else f"a whole number of at least {least}"
            raise bad_value(option, key, f"has {key} {found!r}; it must be {rule}")
    return tuple(sorted(given.items()))
