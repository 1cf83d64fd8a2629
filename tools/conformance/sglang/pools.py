"""What a release makes of free memory: tokens, windowed tokens, recurrent slots, requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

from tools.accuracy.data import ModelSet
from tools.conformance.sglang.release import Release, StandIn, named, stubbed

from vramledger.engines.sglang.budget import largest_slot, rank_terms
from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.pools import solve
from vramledger.engines.sglang.settings import resolve
from vramledger.engines.sglang.sharding import rank_kinds
from vramledger.engines.sglang.version import parse_version
from vramledger.hardware.catalogue import find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source

MODELS = (
    "meta-llama__Llama-3.1-8B-Instruct", "Qwen__Qwen3-235B-A22B", "google__gemma-3-27b-it", "openai__gpt-oss-120b",
    "deepseek-ai__DeepSeek-V3", "deepseek-ai__DeepSeek-V3.2", "Qwen__Qwen3-Next-80B-A3B-Instruct",
)  # fmt: skip
MEMORY = ((63.61, 78.60, 0.83), (20.123, 139.0, 0.9), (9.0, 23.06, 0.85))
FLAGS: tuple[dict[str, Any], ...] = (
    {}, {"kv_cache_dtype": "fp8_e4m3"}, {"page_size": 64}, {"max_total_tokens": 50_000}, {"max_running_requests": 40},
    {"max_running_requests": 40, "disable_radix_cache": True}, {"disable_radix_cache": True}, {"tp_size": 4},
    {"swa_full_tokens_ratio": 0.3, "page_size": 16}, {"max_mamba_cache_size": 77}, {"mamba_full_memory_ratio": 0.2},
)  # fmt: skip
DATA = Path(__file__).resolve().parents[3] / "data"
RELEASES = ("0.5.9", "0.5.23")


def questions(version: str) -> Iterator[dict[str, Any]]:
    """Models, memory and flags, for the releases whose pool code is taken out here."""
    if version not in RELEASES:
        return
    for model, memory, flags in product(MODELS, MEMORY, FLAGS):
        if flags.get("page_size") and "Next" in model:
            continue  # states without extra buffers take pages of one token only
        avail, pre, fraction = memory
        yield {"model": model, "avail": avail, "pre": pre, "fraction": fraction, "flags": flags}


def rules_answer(version: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """The rules' pools on an H100, "refused" where they leave no token."""
    checkpoint = _checkpoint(question["model"])
    flags = SglangFlags(**question["flags"], mem_fraction_static=question["fraction"])
    device = find_device("H100-80GB")
    settings = resolve(checkpoint, device, parse_version(version), flags)
    terms = [
        rank_terms(checkpoint, settings, device, kind)
        for kind in rank_kinds(checkpoint.model, settings, device)
    ]
    cells = [item.cells for item in terms]
    pools = solve(question["avail"], question["pre"], cells, largest_slot(terms), settings)
    refused = pools.tokens <= 0 or pools.rest_bytes <= 0 or pools.max_running_requests <= 0
    if refused:
        return {"refused": True, "tokens": 0, "swa_tokens": 0, "slots": 0, "requests": 0}
    return {
        "refused": False,
        "tokens": pools.tokens,
        "swa_tokens": pools.swa_tokens,
        "slots": pools.slots,
        "requests": pools.max_running_requests,
    }


@cache
def _models() -> ModelSet:
    return ModelSet(DATA)


@cache
def _checkpoint(name: str) -> Checkpoint:
    return checkpoint_from_source(_models().source(name))


def answer(release: Release, question: Mapping[str, Any]) -> dict[str, Any]:
    """tokens, swa_tokens, slots and requests, or that the release refuses."""
    run = _by_configurator if release.has("mem_cache/kv_cache_configurator.py") else _by_mixin
    try:
        found = run(release, question)
    except (RuntimeError, ValueError):
        return {"refused": True}
    return {"refused": False, **found}


class _Shape:
    """What the engine reads from a config, by the config's own keys."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        raw = _models().source(question["model"]).config
        config = raw.get("text_config", raw)
        self.raw = config
        self.tp = question["flags"].get("tp_size", 1)
        self.num_layers = config["num_hidden_layers"]
        self.is_mla = "kv_lora_rank" in config
        self.has_indexer = "index_head_dim" in config
        self.is_multimodal = "vision_config" in raw
        heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads", heads)
        self.head_dim = config.get("head_dim") or config["hidden_size"] // heads
        self.context_len = config["max_position_embeddings"]
        scaling = config.get("rope_scaling") or {}
        if scaling.get("factor") and "original_max_position_embeddings" not in scaling:
            self.context_len = int(self.context_len * scaling["factor"])
        interval = config.get("full_attention_interval")
        self.recurrent = [i for i in range(self.num_layers) if interval and (i + 1) % interval]
        self.full = [i for i in range(self.num_layers) if i not in self.recurrent]
        types = config.get("layer_types") or []
        self.windowed = (
            [i for i, kind in enumerate(types) if kind == "sliding_attention"]
            if config["model_type"] == "gpt_oss"
            else []
        )
        dtype = question["flags"].get("kv_cache_dtype", "auto")
        self.dtype = {"auto": "bf16", "fp8_e4m3": "float8_e4m3fn"}[dtype]

    def model_config(self) -> Any:
        heads: int = self.kv_heads
        config = self.raw

        def local(tp: int, dcp: int = 1) -> int:
            return max(1, heads // (tp // dcp))

        return named(
            get_num_kv_heads=local, get_swa_num_kv_heads=local, head_dim=self.head_dim, v_head_dim=self.head_dim,
            swa_head_dim=self.head_dim, swa_v_head_dim=self.head_dim, kv_lora_rank=config.get("kv_lora_rank"),
            qk_rope_head_dim=config.get("qk_rope_head_dim"), context_len=self.context_len,
            is_hybrid_swa=bool(self.windowed), num_hidden_layers=self.num_layers, hf_config=self, quantization=None,
            full_attention_layer_ids=[i for i in range(self.num_layers) if i not in self.windowed],
            swa_attention_layer_ids=self.windowed, is_multimodal=self.is_multimodal, hf_text_config=named(),
            attention_arch="MLA" if self.is_mla else "MHA",
        )  # fmt: skip

    def mambaish(self) -> Any:
        if not self.recurrent:
            return None
        config = self.raw
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        conv = (2 * keys + values) // self.tp * (config["linear_conv_kernel_dim"] - 1) * 2
        state = values // self.tp * config["linear_key_head_dim"] * 4
        params = named(mamba_cache_per_req=(conv + state) * len(self.recurrent), layers=self.recurrent)
        return named(full_attention_layer_ids=self.full, mamba2_cache_params=params)


def _torch() -> Any:
    widths = {"bf16": 2, "float8_e4m3fn": 1, "uint8": 1}
    return named(
        _utils=named(_element_size=lambda dtype: widths[dtype]),
        float8_e4m3fn="float8_e4m3fn",
        float32="f32",
        bfloat16="bf16",
        int64="int64",
        iinfo=lambda _: named(max=2**63 - 1),
    )


_POOL = named(
    quant_block_size=128, index_k_with_scale_buffer_dtype="uint8", rope_storage_dtype=named(itemsize=2)
)


def _by_mixin(release: Release, question: Mapping[str, Any]) -> dict[str, Any]:
    shape, flags = _Shape(question), question["flags"]
    args = SimpleNamespace(
        max_running_requests=flags.get("max_running_requests"), max_total_tokens=flags.get("max_total_tokens"),
        page_size=64 if shape.has_indexer else flags.get("page_size", 1), dp_size=1, enable_dp_attention=False,
        max_mamba_cache_size=flags.get("max_mamba_cache_size"), speculative_num_draft_tokens=None,
        mamba_full_memory_ratio=flags.get("mamba_full_memory_ratio", 0.9), nsa_prefill_backend="", nsa_decode_backend="",
        disable_radix_cache=flags.get("disable_radix_cache", False), enable_mamba_extra_buffer=lambda: False,
        swa_full_tokens_ratio=flags.get("swa_full_tokens_ratio", 0.8), mem_fraction_static=question["fraction"],
    )  # fmt: skip
    me = SimpleNamespace(
        server_args=args, model_config=shape.model_config(), kv_cache_dtype=shape.dtype, use_mla_backend=shape.is_mla,
        is_draft_worker=False, mambaish_config=shape.mambaish(), num_effective_layers=shape.num_layers, start_layer=0,
        end_layer=shape.num_layers, mem_fraction_static=question["fraction"], device="cuda", gpu_id=0, pp_size=1,
        spec_algorithm=named(is_none=lambda: True), sliding_window_size=128, is_hybrid_swa=bool(shape.windowed),
    )  # fmt: skip
    space = {
        "torch": _torch(), "is_float4_e2m1fn_x2": lambda dtype: False, "get_attention_tp_size": lambda: shape.tp,
        "is_deepseek_nsa": lambda config: shape.has_indexer, "NSATokenToKVPool": _POOL,
        "get_nsa_index_head_dim": lambda config: shape.raw["index_head_dim"],
        "get_available_gpu_memory": lambda *_, **__: question["avail"],
        "get_world_group": lambda: named(world_size=1, cpu_group=None), "MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO": 3,
    }  # fmt: skip
    path = "model_executor/model_runner_kv_cache_mixin.py"
    names = (
        "get_cell_size_per_token",
        "profile_max_num_token",
        "handle_max_mamba_cache",
        "set_num_tokens_hybrid_swa",
    )
    for name, function in release.functions(path, names, space).items():
        setattr(me, name, MethodType(function, me))
    me.max_num_reqs = None
    release.until(path, "init_memory_pool", "Not enough memory", ("max_num_reqs",), space)(
        me, question["pre"]
    )
    # model_runner.py: the table's rows, but no more than half of the tokens where no flag asks for a number.
    halved = me.max_total_num_tokens // 2 if args.max_running_requests is None else args.max_running_requests
    requests = min(halved, me.kept_max_num_reqs)
    if requests <= 0:
        raise RuntimeError("max_running_request is zero")
    return {
        "tokens": me.max_total_num_tokens,
        "swa_tokens": me.swa_max_total_num_tokens if shape.windowed else None,
        "slots": args.max_mamba_cache_size if shape.recurrent else None,
        "requests": requests,
    }


def _by_configurator(release: Release, question: Mapping[str, Any]) -> dict[str, Any]:
    shape, flags = _Shape(question), question["flags"]
    page = 64 if shape.has_indexer else flags.get("page_size", 1)
    schedule = SimpleNamespace(
        mem_fraction_static=question["fraction"], max_total_tokens=flags.get("max_total_tokens"), page_size=page,
        max_running_requests=flags.get("max_running_requests"), max_mamba_cache_size=flags.get("max_mamba_cache_size"),
        mamba_full_memory_ratio=flags.get("mamba_full_memory_ratio", 0.9), prefill_max_requests=None,
        swa_full_tokens_ratio=flags.get("swa_full_tokens_ratio", 0.8), chunked_prefill_size=8192,
        disable_overlap_schedule=False,
    )  # fmt: skip
    memory = named(
        enable_unified_memory=False, enable_hisparse=False, disable_radix_cache=flags.get("disable_radix_cache", False),
        enable_unified_cache_external_linker=False, enable_hierarchical_cache=False,
    )  # fmt: skip
    parallel = named(
        attn_tp_size=shape.tp, attn_dcp_size=1, pp_size=1, launch_world_size=1, world_group=named(cpu_group=None)
    )  # fmt: skip
    fixed = named(SGLANG_VLM_CACHE_SIZE_MB=100, SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=False, SGLANG_SWA_EVICTION_INTERVAL=128,
                  SGLANG_NPU_ENABLE_SPARSE_KV_OFFLOAD=False)  # fmt: skip
    envs = named(**{name: named(get=lambda value=value: value) for name, value in vars(fixed).items()})
    mamba = named(enable_linear_replayssm_spec=False, enable_mamba_extra_buffer=not memory.disable_radix_cache,
                  enable_mamba_extra_buffer_lazy=False)  # fmt: skip
    kernel = named(dsa_prefill_backend="flashmla_sparse", dsa_decode_backend="fa3")
    graph = named(cuda_graph_config=named(prefill=named(full_prefill_max_req=None, backend="breakable")))

    def override(_: str, **values: Any) -> None:
        for name, value in values.items():
            setattr(schedule, name, value)

    space: dict[str, Any] = {
        "torch": _torch(), "math": math, "gc": named(collect=lambda: None), "envs": envs,
        "get_schedule": lambda: schedule, "get_memory": lambda: memory, "get_parallel": lambda: parallel,
        "get_exec": lambda: named(mamba=mamba, kernel=kernel, graph=graph), "get_mm": lambda: named(mm_feature_transport=None),
        "get_spec": lambda: named(speculative_algorithm=None, speculative_num_draft_tokens=None),
        "get_disagg": lambda: named(disaggregation_mode="null"), "get_context": lambda: named(override=override),
        "get_available_gpu_memory": lambda *_, **__: question["avail"], "Backend": named(FULL="full"),
        "is_deepseek_dsa": lambda config: shape.has_indexer, "is_deepseek_v4": lambda config: False,
        "is_minimax_sparse": lambda config: False, "dsa_layer_skips_topk": lambda config, layer: False,
        "get_dsa_index_head_dim": lambda config: shape.raw["index_head_dim"], "get_dsa_index_kpool": lambda config: 1,
        "DSATokenToKVPool": _POOL, "is_float4_e2m1fn_x2": lambda dtype: False, "mambaish_config": lambda config: shape.mambaish(),
        "compute_page_shard_scratch_bytes": lambda *_, **__: 0, "ceil_div": lambda a, b: -(-a // b),
        "ceil_align": lambda a, b: -(-a // b) * b, "AttentionArch": named(MLA="MLA"), "_is_npu": False, "_is_hip": False,
        "get_mamba_tracking_slots": lambda **_: 2, "MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO": 3,
        "MAMBA_CACHE_BASE_RATIO_DROP_ON_SKIP": 1, "MAMBA_CACHE_V2_ADDITIONAL_RATIO_NO_BUFFER": 1,
        "pre_capture_activation_reserve_mb": StandIn(), "_pd_prefill_skips_mamba_spec_state": lambda: False,
    }  # fmt: skip
    config = shape.model_config()
    me = SimpleNamespace(
        device="cuda", gpu_id=0, model_config=config, mambaish_config=shape.mambaish(), post_capture_kv_active=False,
        pp_size=1, attn_dp_size=1, spec_algorithm=named(is_none=lambda: True, is_eagle=lambda: False,
        is_standalone=lambda: False, is_dflash_family=lambda: False), hybrid_gdn_config=None, hybrid_kda_config=None,
        extra_mamba_cache_bytes_per_req=0, fused_entry_bytes=lambda name: None, is_hybrid_swa=bool(shape.windowed),
        layer_info=named(num_effective_layers=shape.num_layers, start_layer=0, end_layer=shape.num_layers,
        full_attention_layer_ids=config.full_attention_layer_ids, swa_attention_layer_ids=shape.windowed),
        kv_cache_dtype=shape.dtype, kv_cache_dtype_str="auto", use_mla_backend=shape.is_mla, page_size=page,
        is_draft_worker=False, server_args=named(enable_hisparse=False), sliding_window_size=128,
        dflash_draft_cell_size_per_token=None, spec_aux_config=named(),
    )  # fmt: skip
    with stubbed({}):
        sizes = release.module("model_executor/pool_configurator.py", space)
        cp = {"get_glm_dsa_layer_split_effective_num_layers": lambda kvc, layers: layers,
              "get_glm_dsa_cp_layer_shard_info": lambda kvc: (0, 1)}  # fmt: skip
        names = (
            "_profile_available_bytes", "_calculate_mamba_ratio", "_apply_token_constraints", "resolve_max_num_reqs",
            "config_from_budget", "_handle_max_mamba_cache", "mm_runtime_reservation_gb", "calculate_mla_kv_cache_dim",
            "_should_elide_dsa_index_k",
        )  # fmt: skip
        functions = release.functions("mem_cache/kv_cache_configurator.py", names, space)
        for name, function in functions.items():
            function.__globals__.update(functions)
            setattr(me, name, MethodType(function, me))
        given = {
            "sglang.srt.model_executor.pool_configurator": sizes,
            "sglang.srt.mem_cache.kv_cache_configurator": functions,
            "sglang.srt.layers.cp.utils": cp,
            "sglang.srt.layers.attention.qsa.config": {"parse_qsa_profile": lambda config: None},
        }
        with stubbed(given):
            found = me.config_from_budget(me._profile_available_bytes(question["pre"]))
            requests = me.resolve_max_num_reqs(found.max_total_num_tokens)
    return {
        "tokens": found.max_total_num_tokens,
        "swa_tokens": found.swa_max_total_num_tokens if shape.windowed else None,
        "slots": schedule.max_mamba_cache_size if shape.recurrent else None,
        "requests": requests,
    }
