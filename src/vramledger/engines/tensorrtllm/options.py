"""trtllm-serve's command line, and the fields of its configuration file, under TensorRT-LLM's own names.

Source: tensorrt_llm/commands/serve.py, llmapi/llm_args.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from vramledger.engines.flag_table import read_flags
from vramledger.engines.option import Option, OptionKind, bad_value
from vramledger.engines.requests import REQUEST_OPTIONS, take_requests
from vramledger.engines.tensorrtllm.flags import (
    ATTENTION_BACKENDS,
    BACKENDS,
    POLICIES,
    QUANTIZATIONS,
    Speculation,
    TrtLlmFlags,
)
from vramledger.errors import FlagError

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.models.checkpoint import Checkpoint

_RUN, _PARALLEL, _BATCH, _MEMORY, _TYPES, _LORA, _GRAPHS = (
    "Execution",
    "Parallelism",
    "Context and batch",
    "KV cache",
    "Formats",
    "LoRA",
    "CUDA graphs",
)
COUNT, SWITCH, TEXT, NUMBER = OptionKind.COUNT, OptionKind.SWITCH, OptionKind.TEXT, OptionKind.NUMBER


def _option(
    name: str, kind: OptionKind, group: str, text: str, *aliases: str, choices: tuple[str, ...] = ()
) -> Option:
    """A flag, also spelled with underscores as trtllm-serve has it."""
    spelled = (f"--{name}",) if "_" in name and kind is not SWITCH else ()
    return Option(name=name, kind=kind, group=group, help=text, aliases=(*spelled, *aliases), choices=choices)


OPTIONS: tuple[Option, ...] = (
    _option("backend", TEXT, _RUN, "Back end; pytorch since 1.0.", choices=BACKENDS),
    _option("tp_size", COUNT, _PARALLEL, "Ranks a layer is cut over.", "--tp"),
    _option("pp_size", COUNT, _PARALLEL, "Stages of layers.", "--pp"),
    _option("ep_size", COUNT, _PARALLEL, "Ranks of the tp group that share whole experts.", "--ep"),
    _option("enable_attention_dp", SWITCH, _PARALLEL, "Attention whole on every rank, requests dealt out."),
    _option("max_batch_size", COUNT, _BATCH, "Requests in one step at most."),
    _option("max_num_tokens", COUNT, _BATCH, "Tokens in one step at most."),
    _option("max_seq_len", COUNT, _BATCH, "Tokens of one request, prompt and answer; lowered to what the pool holds."),
    _option("max_beam_width", COUNT, _BATCH, "Beams of a request at most."),
    _option(
        "capacity_scheduler_policy", TEXT, _BATCH, "Who is admitted; the default reserves every answer's length.",
        choices=POLICIES,
    ),
    _option(
        "free_gpu_memory_fraction", NUMBER, _MEMORY, "Share of the memory free after the model is loaded.",
        "--kv_cache_free_gpu_memory_fraction", "--kv-cache-free-gpu-memory-fraction",
        "--kv_cache_free_gpu_mem_fraction",
    ),
    _option("max_tokens", COUNT, _MEMORY, "Tokens of the pool at most; the smaller of it and the share holds."),
    _option("max_gpu_total_bytes", COUNT, _MEMORY, "Bytes of the pool on one rank at most (8G is 8 GiB)."),
    _option("tokens_per_block", COUNT, _MEMORY, "Tokens in a KV block."),
    _option("enable_block_reuse", SWITCH, _MEMORY, "Keep blocks of prefixes for reuse."),
    _option(
        "max_attention_window", OptionKind.COUNTS, _MEMORY,
        "Windows of the layers, repeated over them: a pool for each distinct one.",
    ),
    _option("host_cache_size", COUNT, _MEMORY, "Host bytes of one rank for offloaded blocks (8G is 8 GiB)."),
    _option("use_kv_cache_manager_v2", SWITCH, _MEMORY, "The manager that sizes its pools by a byte quota."),
    _option("max_util_for_resume", NUMBER, _MEMORY, "Fill level up to which V2 resumes requests."),
    _option("mamba_state_cache_interval", COUNT, _MEMORY, "Tokens between kept recurrent states, with block reuse."),
    _option("kv_cache_dtype", TEXT, _TYPES, "Type of the KV cache: auto, fp8, int8, nvfp4, bfloat16, float16."),
    _option("dtype", TEXT, _TYPES, "Type the model runs in."),
    _option("quantization", TEXT, _TYPES, "What the weights were quantised to when the engine was built.",
            choices=QUANTIZATIONS),
    _option("mamba_ssm_cache_dtype", TEXT, _TYPES, "Type of recurrent states."),
    _option("attn_backend", TEXT, _RUN, "Attention of the PyTorch back end.", choices=ATTENTION_BACKENDS),
    _option(
        "speculative_config", OptionKind.JSON, _RUN,
        'Draft: \'{"decoding_type": "MTP", "max_draft_len": 3}\'; Eagle3 and DraftTarget name a "speculative_model".',
    ),
    _option("cuda_graph", SWITCH, _GRAPHS, "Capture CUDA graphs of decode steps (PyTorch back end)."),
    _option("cuda_graph_max_batch_size", COUNT, _GRAPHS, "Largest batch captured, 128 by default."),
    _option("cuda_graph_batch_sizes", OptionKind.COUNTS, _GRAPHS, "Batches captured, instead of the default list."),
    _option("cuda_graph_enable_padding", SWITCH, _GRAPHS, "Round batches up to captured ones."),
    _option("enable_lora", SWITCH, _LORA, "Keep a cache of LoRA adapters."),
    _option("lora_device_cache_percent", NUMBER, _LORA, "Share of the memory free after loading for adapters."),
    _option("lora_host_cache_size", COUNT, _LORA, "Host bytes of the adapter cache of one rank."),
    *(option for option in REQUEST_OPTIONS if option.name != "prompt_embeds"),
)  # fmt: skip

_SHORT = {
    "tp": "tp_size",
    "pp": "pp_size",
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "moe_expert_parallel_size": "ep_size",
    "kv_cache_free_gpu_memory_fraction": "free_gpu_memory_fraction",
    "kv_cache_free_gpu_mem_fraction": "free_gpu_memory_fraction",
}
_DECODING = {
    "mtp": "MTP",
    "eagle3": "Eagle3",
    "eagle": "Eagle3",
    "drafttarget": "DraftTarget",
    "draft_target": "DraftTarget",
}


def plan_with(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """The plan of one instance under flags by name; see `engines.Engine`."""
    flags = flags_from(values)
    from vramledger.engines.tensorrtllm.planner import plan
    from vramledger.engines.tensorrtllm.version import NEWEST, parse_version

    asked = NEWEST if version is None else parse_version(version)
    return plan(checkpoint, device, version=asked, flags=flags, concurrency=concurrency, remedies=remedies)


def flags_from(values: Mapping[str, object]) -> TrtLlmFlags:
    """Flags by name, as text or as values. Raises FlagError for what the engine does not have or take."""
    kept = dict(values)
    replicas = kept.pop("dp", None)
    if replicas not in (None, 1):
        raise FlagError(
            f"tensorrt-llm has no replicas inside an instance (--dp {replicas}); --enable-attention-dp deals requests "
            "to the ranks of the tp group",
            flag="dp",
            value=str(replicas),
        )
    spread = kept.pop("ep", None)
    if not isinstance(spread, bool) and spread is not None:
        kept["ep_size"] = spread
    found: dict[str, Any] = read_flags(kept, OPTIONS, _SHORT, "tensorrt-llm")
    drafts = found.pop("speculative_config", None)
    if drafts is not None:
        found["speculative"] = _speculation(drafts)
    take_requests(found)
    flags = TrtLlmFlags(**found)
    return replace(flags, ep_size=flags.tp_size) if spread is True else flags


def _speculation(value: Mapping[str, object]) -> Speculation:
    option = next(option for option in OPTIONS if option.name == "speculative_config")
    unknown = set(value) - {
        "decoding_type",
        "max_draft_len",
        "num_nextn_predict_layers",
        "speculative_model",
        "speculative_model_dir",
    }
    if unknown:
        raise bad_value(option, value, f"has {', '.join(sorted(unknown))}, which is not known here")
    kind = _DECODING.get(str(value.get("decoding_type", "")).lower())
    if kind is None:
        raise bad_value(option, value, "has a decoding_type other than MTP, Eagle3 and DraftTarget")
    length = value.get("max_draft_len", value.get("num_nextn_predict_layers"))
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= 1024:
        raise bad_value(option, value, "needs a max_draft_len of at least 1")
    source = value.get("speculative_model", value.get("speculative_model_dir"))
    if kind == "MTP":
        return Speculation(decoding_type=kind, max_draft_len=length)
    if not isinstance(source, str) or not source.strip():
        raise bad_value(option, value, f"needs the speculative_model of {kind}")
    from vramledger.models.loading import load_checkpoint

    return Speculation(decoding_type=kind, max_draft_len=length, draft=load_checkpoint(source, headers=True))
