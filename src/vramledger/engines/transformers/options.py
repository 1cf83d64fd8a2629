"""The command line of `transformers serve --continuous-batching`, and fields of its ContinuousBatchingConfig that
have no flag there, under the library's names.

Source: transformers cli/serve.py, generation/configuration_utils.py of 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramledger.engines.flag_table import read_flags, refuse_parallel
from vramledger.engines.option import Option, OptionKind
from vramledger.engines.option import option as _option
from vramledger.engines.transformers.flags import QUANTIZATIONS, TransformersFlags

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.models.checkpoint import Checkpoint

_MODEL, _CACHE, _BATCH, _RUN = "Model", "Paged cache", "Batch", "Execution"
COUNT, SWITCH, TEXT, NUMBER = OptionKind.COUNT, OptionKind.SWITCH, OptionKind.TEXT, OptionKind.NUMBER


OPTIONS: tuple[Option, ...] = (
    _option("tp_size", COUNT, _MODEL, 'Processes that tp_plan="auto" cuts the model over.', "--tp", "-tp"),
    _option("dtype", TEXT, _MODEL, "Type the model runs and caches in: auto, bfloat16, float16, float32."),
    _option("quantization", TEXT, _MODEL, "Quantise while loading.", choices=QUANTIZATIONS),
    _option(
        "attn_implementation", TEXT, _MODEL, "eager, sdpa (default), flash_attention_2, flash_attention_3, or a kernel."
    ),
    _option("continuous_batching", SWITCH, _RUN, "Batch continuously over a paged cache; the only way planned here."),
    _option("block_size", COUNT, _CACHE, "Tokens in a page (page_size since 5.17).", "--cb-block-size", "--page-size"),
    _option("num_blocks", COUNT, _CACHE, "Blocks of the cache, whatever fits.", "--cb-num-blocks"),
    _option(
        "max_memory_percent", NUMBER, _CACHE, "Share of the memory free after loading, 0 to 1.",
        "--cb-max-memory-percent",
    ),
    _option("allow_block_sharing", SWITCH, _CACHE, "Share blocks of equal prefixes."),
    _option("cpu_offload_space", NUMBER, _CACHE, "GiB of pinned host memory for caches of evicted requests."),
    _option("max_length", COUNT, _BATCH, "Tokens of one request, prompt and answer; the config's positions by default."),
    _option("max_batch_tokens", COUNT, _BATCH, "Tokens in one batch at most.", "--cb-max-batch-tokens"),
    _option("max_requests_per_batch", COUNT, _BATCH, "Requests in one batch at most."),
    _option("max_blocks_per_request", COUNT, _BATCH, "Width of the decode path's block table, 0 for none."),
    _option("return_logprobs", SWITCH, _BATCH, "Return log probabilities."),
    _option("logits_processors", SWITCH, _BATCH, "Sampling uses logits processors, which lowers the default share."),
    _option("use_cuda_graph", SWITCH, _RUN, "Capture CUDA graphs.", "--cb-use-cuda-graph"),
    _option("use_async_batching", SWITCH, _RUN, "Prepare a batch while one runs: two sets of inputs."),
)  # fmt: skip

_SHORT = {"tp": "tp_size", "page_size": "block_size"}
_ABSENT = {"pp": "pipeline", "dp": "data", "ep": "expert"}


def plan_with(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """The plan of one server under flags by name; see `engines.Engine`."""
    flags = flags_from(values)
    from vramledger.engines.transformers.planner import plan
    from vramledger.engines.transformers.version import NEWEST, parse_version

    asked = NEWEST if version is None else parse_version(version)
    return plan(checkpoint, device, version=asked, flags=flags, concurrency=concurrency, remedies=remedies)


def flags_from(values: Mapping[str, object]) -> TransformersFlags:
    """Flags by name, as text or as values. Raises FlagError for what the library does not have or take."""
    refuse_parallel(values, _ABSENT, "transformers' continuous batching")
    kept = {name: value for name, value in values.items() if name not in _ABSENT}
    found: dict[str, Any] = read_flags(kept, OPTIONS, _SHORT, "transformers")
    return TransformersFlags(**found)
