"""What a release picks without a flag: chunk, captured sizes, static fraction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import MethodType, SimpleNamespace
from typing import Any

from tools.conformance.sglang.release import Release, StandIn, named, stubbed

from vramledger.engines.sglang.defaults import PREFILL_GRAPHS_SINCE
from vramledger.engines.sglang.version import parse_version

CARDS = (None, 15360, 24564, 46068, 81559, 143771, 183359)
FLAGS: tuple[dict[str, Any], ...] = (
    {}, {"tp_size": 4}, {"tp_size": 8, "pp_size": 2}, {"max_running_requests": 20}, {"chunked_prefill_size": 1024},
    {"chunked_prefill_size": -1, "max_prefill_tokens": 40000}, {"cuda_graph_max_bs": 333}, {"disable_cuda_graph": True},
    {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, {"tp_size": 16, "dp_size": 4, "enable_dp_attention": True},
    {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4}, {"speculative_algorithm": "STANDALONE"},
    {"speculative_algorithm": "NGRAM"}, {"max_total_tokens": 3000}, {"disaggregation_mode": "decode"},
    {"disaggregation_mode": "prefill"}, {"moe_a2a_backend": "deepep", "tp_size": 8},
)  # fmt: skip


def questions(version: str) -> Iterator[dict[str, Any]]:
    """Cards, flags, kinds of attention, and whether prefill is captured (by default since 0.5.10)."""
    captures = parse_version(version).since(*PREFILL_GRAPHS_SINCE)
    for card, flags, mla, graphs in product(
        CARDS, FLAGS, (False, True), (True, False) if captures else (False,)
    ):
        yield {"gpu_mem": card, "flags": flags, "is_mla": mla, "prefill_graphs": graphs}


_DEFAULTS: dict[str, Any] = {
    "tp_size": 1, "pp_size": 1, "dp_size": 1, "enable_dp_attention": False, "mem_fraction_static": None,
    "max_running_requests": None, "chunked_prefill_size": None, "max_prefill_tokens": 16384, "page_size": 1,
    "max_total_tokens": None, "cuda_graph_max_bs": None, "cuda_graph_bs": None, "disable_cuda_graph": False,
    "disable_cuda_graph_padding": False, "speculative_algorithm": None, "speculative_num_draft_tokens": None,
    "disaggregation_mode": "null", "moe_a2a_backend": "none", "context_length": None, "device": "cuda",
    "language_only": False, "language_model_only": False, "enable_symm_mem": False, "model_path": "a/model",
    "enable_piecewise_cuda_graph": False, "piecewise_cuda_graph_tokens": None, "torch_compile_max_bs": 32,
}  # fmt: skip


def answer(release: Release, question: Mapping[str, Any]) -> dict[str, Any]:
    """chunked_prefill_size, largest decode batch, captured sizes where a release lists them, mem_fraction_static."""
    flags = question["flags"]
    args = SimpleNamespace(**{**_DEFAULTS, **flags})
    args.attn_dp_size = flags.get("dp_size", 1)
    args.is_mla = question["is_mla"]
    args.model_config = named(is_multimodal=False, hf_config=named(architectures=["M"]))
    args.disable_piecewise_cuda_graph = not question["prefill_graphs"]
    decode = "disabled" if flags.get("disable_cuda_graph") else "full"
    prefill = "breakable" if question["prefill_graphs"] else "disabled"
    args.cuda_graph_config = named(
        decode=named(max_bs=flags.get("cuda_graph_max_bs"), bs=None, backend=decode),
        prefill=named(max_bs=None, bs=None, backend=prefill),
    )
    args._cuda_graph_config_locked = set()
    args.piecewise_cuda_graph_max_tokens = 4096 if release.old_pieces else None
    if release.has("arg_groups/memory_hook.py"):
        _by_hook(release, args, question["gpu_mem"])
    elif "_handle_gpu_memory_settings" in _methods(release):
        _by_method(release, args, question["gpu_mem"])
    else:
        _by_statements(release, args, question["gpu_mem"])
    config = args.cuda_graph_config
    newer = config.decode.bs is not None
    prefill_listed = config.prefill.bs if newer else args.piecewise_cuda_graph_tokens
    return {
        "chunked_prefill_size": args.chunked_prefill_size,
        "decode_max_bs": config.decode.max_bs if newer else args.cuda_graph_max_bs,
        "decode_sizes": _summed(config.decode.bs if newer else args.cuda_graph_bs),
        "prefill_sizes": _summed(prefill_listed) if question["prefill_graphs"] else None,
        "mem_fraction_static": args.mem_fraction_static,
    }


def _summed(sizes: Sequence[int] | None) -> list[int] | None:
    """How many sizes, their sum and the largest."""
    return None if sizes is None else [len(sizes), sum(sizes), max(sizes, default=0)]


def _config_of(args: Any) -> Any:
    return args.model_config


_MODEL_CONFIG = named(from_server_args=_config_of)
_NAMES = (
    "_handle_gpu_memory_settings", "_generate_cuda_graph_batch_sizes", "_generate_decode_cuda_graph_batch_sizes",
    "_generate_prefill_cuda_graph_batch_sizes", "_generate_piecewise_cuda_graph_tokens", "reserve_for_graph_mb",
    "reserve_for_deepep_a2a_mb",
)  # fmt: skip


def _backends() -> Any:
    return named(DISABLED="disabled", BREAKABLE="breakable", FULL="full", TC_PIECEWISE="tc_piecewise")


def _methods(release: Release) -> dict[str, Any]:
    space = {"Backend": _backends(), "Phase": named(PREFILL="prefill", DECODE="decode"), "is_npu": lambda: False,
             "envs": StandIn(), "resolved_view": lambda args: args}  # fmt: skip
    return release.functions("server_args.py", _NAMES, space)


def _by_method(release: Release, args: Any, gpu_mem: int | None) -> None:
    for name, function in _methods(release).items():
        setattr(args, name, MethodType(function, args))
    args.use_mla_backend = lambda: args.is_mla
    args.post_capture_kv_sizing_planned = lambda: False
    args.get_model_config = lambda: args.model_config
    args._resolved = lambda: args
    given: dict[str, dict[str, Any]] = {
        "sglang.srt.configs.model_config": {"ModelConfig": _MODEL_CONFIG},
        "sglang.srt.arg_groups.overrides": {"resolved_view": lambda args: args},
    }
    with stubbed(given):
        args._handle_gpu_memory_settings(gpu_mem)


def _by_statements(release: Release, args: Any, gpu_mem: int | None) -> None:
    words = ("gpu_mem", "mem_fraction_static", "chunked_prefill_size", "cuda_graph_max_bs")
    space: dict[str, Any] = {"get_device_memory_capacity": lambda *_: gpu_mem, "is_npu": lambda: False}
    run = release.statements("server_args.py", "__post_init__", words, space)
    given: dict[str, dict[str, Any]] = {"sglang.srt.configs.model_config": {"ModelConfig": _MODEL_CONFIG}}
    with stubbed(given):
        run(args)


def _by_hook(release: Release, args: Any, gpu_mem: int | None) -> None:
    def declare(target: Any, _: str, **values: Any) -> None:
        for name, value in values.items():
            setattr(target, name, value)

    sizes = release.functions(
        "arg_groups/cuda_graph_hook.py",
        ("generate_decode_cuda_graph_batch_sizes", "generate_prefill_cuda_graph_batch_sizes"),
        {"resolving_view": lambda args: args},
    )
    import copy

    space = {
        "copy": copy,
        "Backend": _backends(),
        "Phase": named(PREFILL="prefill", DECODE="decode"),
        "declare_resolution": declare,
        "model_config_of": lambda args: args.model_config,
        "post_capture_kv_sizing_planned": lambda args: False,
        "resolved_view": lambda args: args,
        "resolving_view": lambda args: args,
        "use_mla_backend": lambda args: args.is_mla,
        "attn_dp_enabled_of": lambda args: args.enable_dp_attention,
        "get_platform": lambda: named(is_xpu=False),
        "get_device_memory_capacity": lambda device: gpu_mem,
        "envs": StandIn(),
        "_DEFAULT_PP_PREFILL_CUDA_GRAPH_MAX_TOKENS": 8192,
    }
    names = (
        "handle_gpu_memory_settings", "reserve_for_graph_mb", "reserve_for_deepep_a2a_mb", "adjust_mem_fraction_for_vlm"
    )  # fmt: skip
    functions = release.functions("arg_groups/memory_hook.py", names, space)
    for function in functions.values():
        function.__globals__.update(functions)
    with stubbed({"sglang.srt.arg_groups.cuda_graph_hook": sizes}):
        handle = functions["handle_gpu_memory_settings"]
        handle(*((args, gpu_mem) if handle.__code__.co_argcount == 2 else (args,)))
