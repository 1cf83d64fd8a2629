"""Run inside an environment that has transformers: builds its paged cache for each case and prints what it found.

The one stand-in is for the query of the device's memory; tensors are on the meta device and hold nothing.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

torch: Any = import_module("torch")
transformers: Any = import_module("transformers")
module: Any = import_module("transformers.generation.continuous_batching.cache")

NAMES = ("num_blocks", "max_batch_tokens", "max_memory_percent", "max_blocks_per_request", "use_async_batching",
         "return_logprobs", "max_requests_per_batch")  # fmt: skip


class Ranks:
    """What the cache asks of the distributed helper, for ranks whose memory is alike."""

    def __init__(self, tp_size: int) -> None:
        self.tp_size = tp_size

    def are_kv_heads_tp_ed(self) -> bool:
        return self.tp_size > 1

    def tp_all_reduce_min(self, value: Any) -> Any:
        return value


class Meta(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """Keeps the two numbers that ranks agree on off the meta device, where they could not be read."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and str(kwargs.get("device")) == "meta":
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def main() -> int:
    print(json.dumps({"ready": transformers.__version__}), flush=True)
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    weights: dict[str, int] = {}
    for case in asked:
        try:
            found = answer(case, weights)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"name": case["name"], **found}), flush=True)
    return 0


def answer(case: dict[str, Any], weights: dict[str, int]) -> dict[str, Any]:
    config = transformers.AutoConfig.for_model(**case["config"])
    args = case["args"]
    dtype = getattr(torch, args.get("dtype", "bfloat16"))
    if case["kind"] not in weights:
        weights[case["kind"]] = weigh(config)
    found: dict[str, Any] = {"weights": weights[case["kind"]]}
    text = config.get_text_config()
    text._attn_implementation = args["attn_implementation"]
    memory = (torch.device("meta"), case["total_bytes"], case["used_bytes"], case["used_bytes"])
    module.get_device_and_memory_breakdown = lambda: memory
    handler = module.PagedAttentionMemoryHandler
    solved: dict[str, Any] = {}
    watch(handler, solved)
    try:
        with Meta():
            cache = build(text, args, dtype)
    except (MemoryError, ValueError, ZeroDivisionError) as refusal:
        return {**found, "refused": type(refusal).__name__}
    found |= {
        "batch_tokens": cache.max_batch_tokens,
        "units": getattr(cache, "num_sectors", cache.num_blocks),
        "footprint": solved.get("footprint"),
    }
    if hasattr(cache, "num_sectors"):
        found |= {
            "unit_bytes": cache.bytes_per_sector,
            "unit_tokens": cache.tokens_per_sector,
            "whole_blocks": cache.num_blocks,
            "cache_bytes": cache.cache_tensor.numel(),
            "requests": [storable(cache, length) for length in case["lengths"]],
        }
    else:
        found["cache_bytes"] = sum(
            tensor.numel() * tensor.element_size() for tensor in [*cache.key_cache, *cache.value_cache]
        )
    return found


def build(config: Any, args: dict[str, Any], dtype: Any) -> Any:
    """The cache by the constructor of this release."""
    cls = module.PagedAttentionCache
    named = {name: args[name] for name in NAMES if args.get(name) is not None}
    parameters = signature(cls.__init__).parameters
    if "generation_config" in parameters:
        generation = transformers.GenerationConfig()
        for name, value in named.items():
            setattr(generation, "max_memory" if name == "max_memory_percent" else name, value)
        if args.get("block_size"):
            generation.block_size = args["block_size"]
        return cls(config, generation, torch.device("meta"), dtype, tp_size=args.get("tp_size"))
    given = transformers.ContinuousBatchingConfig()
    for name, value in named.items():
        if hasattr(given, name):
            setattr(given, name, value)
    if args.get("block_size"):
        given.block_size = given.page_size = args["block_size"]
    extra: dict[str, Any] = {"device": torch.device("meta"), "dtype": dtype}
    tp_size = args.get("tp_size", 1)
    if "distributed_helper" in parameters:
        extra["distributed_helper"] = Ranks(tp_size)
    elif "tp_size" in parameters:
        extra["tp_size"] = tp_size
    if "tp_plan" in parameters:
        extra["tp_plan"] = {"layers.*.self_attn.k_proj": "colwise", "layers.*.self_attn.v_proj": "colwise"}
    if "model_supports_logits_to_keep" in parameters:
        extra["model_supports_logits_to_keep"] = True
    return cls(config, continuous_batching_config=given, **extra)


def watch(handler: Any, solved: dict[str, Any]) -> None:
    """Notes the footprint that the handler's own check computes."""
    original = getattr(handler, "original_footprint", handler.compute_memory_footprint)

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        solved["footprint"] = original(self, *args, **kwargs)
        return solved["footprint"]

    handler.original_footprint = original
    handler.compute_memory_footprint = noted


def storable(cache: Any, length: int) -> int:
    """How many of 1024 requests of `length` tokens the library's own count admits into the empty cache."""
    blocks = {
        name: allocator.needs_new_blocks("request", 0, length)
        for name, allocator in cache.cache_allocators.items()
    }
    admitted: int = cache.count_storable_requests([blocks] * 1024)
    return admitted


def weigh(config: Any) -> int:
    """Bytes of the parameters of the causal class in bfloat16, tied ones once."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return sum(value.numel() * value.element_size() for value in model.parameters())


if __name__ == "__main__":
    sys.exit(main())
