"""Real models as the keys of their published config.json that decide a layout, and short ways to ask about them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramledger.answer import Plan
from vramledger.engines.vllm.budget import RankTerms, rank_terms
from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
from vramledger.engines.vllm.kv_budget import Capacity, capacity
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.planner import cache_format, kv_layout, plan
from vramledger.engines.vllm.settings import Settings, resolve
from vramledger.engines.vllm.sharding import rank_kinds
from vramledger.engines.vllm.version import NEWEST, parse_version
from vramledger.engines.vllm.weights import RankWeights, rank_weights
from vramledger.hardware.catalogue import Device, find_device
from vramledger.ledger import ByteRange
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.models.sources.load import Source
from vramledger.units import GIB

LLAMA_3_1_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
LLAMA_3_8B = LLAMA_3_1_8B | {"max_position_embeddings": 8192, "rope_scaling": None}
LLAMA_3_1_70B = LLAMA_3_1_8B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
}
R1_DISTILL_QWEN_1_5B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "max_position_embeddings": 131072,
    "num_attention_heads": 12,
    "num_hidden_layers": 28,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_32B: dict[str, Any] = {
    "model_type": "qwen3",
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "max_position_embeddings": 40960,
    "num_attention_heads": 64,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_32B_AWQ = QWEN3_32B | {
    "torch_dtype": "float16",
    "quantization_config": {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 128,
        "version": "gemm",
        "zero_point": True,
    },
}
QWEN3_30B_A3B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
QWEN3_235B_A22B_FP8 = QWEN3_30B_A3B | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_hidden_layers": 94,
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(94))],
    },
}
MIXTRAL_8X7B: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 32000,
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "weight_block_size": [128, 128],
    },
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 129280,
}
DEEPSEEK_V3_2 = DEEPSEEK_V3 | {
    "model_type": "deepseek_v32",
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 2048,
}
GEMMA_3_27B: dict[str, Any] = {
    "model_type": "gemma3",
    "dtype": "bfloat16",
    "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
        "vision_use_head": False,
    },
}
GPT_OSS_20B: dict[str, Any] = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
GPT_OSS_120B = GPT_OSS_20B | {
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "num_hidden_layers": 36,
    "num_local_experts": 128,
}
GEMMA_4_26B_A4B: dict[str, Any] = {
    "model_type": "gemma4",
    "dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma4_text",
        "attention_k_eq_v": True,
        "dtype": "bfloat16",
        "enable_moe_block": True,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_size": 2816,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 2112,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 5,
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 704,
        "num_attention_heads": 16,
        "num_experts": 128,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "num_kv_shared_layers": 0,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_type": "proportional"},
            "sliding_attention": {"rope_type": "default"},
        },
        "sliding_window": 1024,
        "tie_word_embeddings": True,
        "top_k_experts": 8,
        "vocab_size": 262144,
        "vocab_size_per_layer_input": 262144,
    },
    "vision_config": {
        "model_type": "gemma4_vision",
        "default_output_length": 280,
        "head_dim": 72,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "num_key_value_heads": 16,
        "patch_size": 16,
        "pooling_kernel_size": 3,
        "position_embedding_size": 10240,
        "standardize": True,
    },
}
QWEN3_5_27B: dict[str, Any] = {
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "head_dim": 256,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "rope_parameters": {
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_type": "default",
        },
        "vocab_size": 248320,
    },
    "vision_config": {
        "model_type": "qwen3_5",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "num_position_embeddings": 2304,
        "out_hidden_size": 5120,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}
QWEN3_5_35B_A3B: dict[str, Any] = {
    "model_type": "qwen3_5_moe",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "head_dim": 256,
        "hidden_size": 2048,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 10,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 512,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 16,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 40,
        "num_key_value_heads": 2,
        "rope_parameters": {
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_type": "default",
        },
        "shared_expert_intermediate_size": 512,
        "vocab_size": 248320,
    },
    "vision_config": QWEN3_5_27B["vision_config"] | {"out_hidden_size": 2048},
}
NEMOTRON_3_NANO_30B: dict[str, Any] = {
    "model_type": "nemotron_h",
    "conv_kernel": 4,
    "expand": 2,
    "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856,
    "mamba_head_dim": 64,
    "mamba_num_heads": 64,
    "mamba_ssm_cache_dtype": "float32",
    "max_position_embeddings": 262144,
    "mlp_hidden_act": "relu2",
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_groups": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_conv_bias": True,
    "vocab_size": 131072,
}
LFM2_1_2B: dict[str, Any] = {
    "model_type": "lfm2",
    "block_auto_adjust_ff_dim": True,
    "block_dim": 2048,
    "block_ff_dim": 12288,
    "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256,
    "conv_L_cache": 3,
    "conv_bias": False,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "hidden_size": 2048,
    "max_position_embeddings": 128000,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
    "vocab_size": 65536,
}
LLAMA_4_SCOUT: dict[str, Any] = {
    "model_type": "llama4",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "llama4_text",
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "hidden_size": 5120,
        "interleave_moe_layer_step": 1,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "max_position_embeddings": 10485760,
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "torch_dtype": "bfloat16",
        "vocab_size": 202048,
    },
    "vision_config": {
        "model_type": "llama4_vision_model",
        "hidden_size": 1408,
        "image_size": 336,
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_hidden_layers": 34,
        "patch_size": 14,
        "pixel_shuffle_ratio": 0.5,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "vision_output_dim": 4096,
    },
}
MIMO_V2_FLASH: dict[str, Any] = {
    "model_type": "mimo_v2_flash",
    "add_full_attention_sink_bias": False,
    "add_swa_attention_sink_bias": True,
    "head_dim": 192,
    "hidden_size": 4096,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, *([1, 1, 1, 1, 1, 0] * 7)],
    "intermediate_size": 16384,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": [0, *([1] * 47)],
    "n_routed_experts": 256,
    "n_shared_experts": None,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "partial_rotary_factor": 0.334,
    "sliding_window_size": 128,
    "swa_num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 152576,
}
SMOLLM2_135M: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}
TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "head_dim": 32,
    "intermediate_size": 256,
    "max_position_embeddings": 4096,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 512,
}


def checkpoint(
    config: Mapping[str, Any], *, hf_quant: Mapping[str, Any] | None = None, **changes: object
) -> Checkpoint:
    """The checkpoint of a config, top-level keys changed, read as from a folder without weights."""
    return checkpoint_from_source(
        Source(
            id="a/model",
            where="config.json",
            config={**config, **changes},
            quant_configs={} if hf_quant is None else {"hf_quant_config.json": hf_quant},
            side_configs={},
            table=None,
            index=None,
            gguf=None,
            disk_bytes=None,
            disk_evidence=None,
            files=("config.json",),
        )
    )


H100 = find_device("H100-80GB")


CPU = find_device("cpu:24GiB")
_PARALLEL = ("tp", "pp", "dp", "dcp", "pcp", "enable_expert_parallel")


def question(values: Mapping[str, Any]) -> tuple[ParallelPlan, VllmFlags]:
    """Parallel sizes and the other flags, told apart by name."""
    sizes = {name: value for name, value in values.items() if name in _PARALLEL}
    rest = {name: value for name, value in values.items() if name not in _PARALLEL}
    return ParallelPlan(**sizes), VllmFlags(**rest)


def settings(
    subject: Checkpoint, device: Device = H100, version: str = str(NEWEST), **values: Any
) -> Settings:
    parallel, flags = question(values)
    return resolve(subject.model, device, parse_version(version), parallel, flags)


def layout(subject: Checkpoint, device: Device = H100, version: str = str(NEWEST), **values: Any) -> Layout:
    """Groups of KV layers, as the planner makes them."""
    found = settings(subject, device, version, **values)
    return kv_layout(subject, found, device, cache_format(subject, found, device))


def bytes_per_token(
    subject: Checkpoint, device: Device = H100, version: str = str(NEWEST), **values: Any
) -> int:
    """KV bytes of one token on one rank over every layer that keeps it, recurrent states not counted."""
    pool = planned(subject, device, version, **values).kv_pool
    assert pool is not None
    return pool.bytes_per_token


def lines(
    subject: Checkpoint, pool_bytes: int, device: Device = H100, version: str = str(NEWEST), **values: Any
) -> Capacity:
    """Blocks, token line and concurrency of a pool of so many bytes."""
    found = settings(subject, device, version, **values)
    groups = kv_layout(subject, found, device, cache_format(subject, found, device))
    return capacity(groups, pool_bytes // groups.bytes_per_block(), found)


def planned(subject: Checkpoint, device: Device = H100, version: str = str(NEWEST), **values: Any) -> Plan:
    parallel, flags = question(values)
    return plan(subject, device, version=parse_version(version), parallel=parallel, flags=flags)


def weights(
    subject: Checkpoint, device: Device = H100, version: str = str(NEWEST), **values: Any
) -> list[RankWeights]:
    """Weights of each kind of rank."""
    found = settings(subject, device, version, **values)
    kinds = rank_kinds(subject.model, found.plan, found.flags, found.version)
    return [rank_weights(subject, found, kind, device) for kind in kinds]


def terms(
    subject: Checkpoint, device: Device = H100, version: str = str(NEWEST), **values: Any
) -> list[RankTerms]:
    found = settings(subject, device, version, **values)
    kinds = rank_kinds(subject.model, found.plan, found.flags, found.version)
    cache = cache_format(subject, found, device)
    groups = kv_layout(subject, found, device, cache)
    return [rank_terms(subject, found, device, kind, groups, cache) for kind in kinds]


def tensor_bytes(held: RankWeights) -> int:
    """Weights as tensors: without rope tables and without what the allocator strands."""
    return sum(group.total for group in held.groups.values()) + held.absorbed_bytes


def gib(size: int | ByteRange) -> float:
    return (size.expected if isinstance(size, ByteRange) else size) / GIB


def published() -> dict[str, dict[str, Any]]:
    """Config files by model ("org__name") of every model the repository keeps."""
    with gzip.open(Path(__file__).parents[1] / "data" / "models.json.gz", "rt", encoding="utf-8") as packed:
        found: dict[str, dict[str, Any]] = json.load(packed)["models"]
    return found
