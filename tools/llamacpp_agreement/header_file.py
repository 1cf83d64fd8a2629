"""A GGUF file of a described model: its whole header, its data a hole.

Source: llama.cpp gguf-py/gguf/constants.py (keys), src/llama-model.cpp (which keys loading needs). Values that
decide no memory (epsilons, rope bases) are plain defaults.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.formats.ggml import ggml_type
from vramledger.models.mixers import (
    RECURRENT,
    DenseMlp,
    FullAttention,
    GatedDeltaNet,
    LatentAttention,
    Mamba1,
    Mamba2,
    MixtureOfExperts,
    SharedKvAttention,
    ShortConvolution,
)
from vramledger.models.model import Model

Value = int | float | bool | str | list[int] | list[bool]
_ALIGNMENT = 32


def write_header_file(
    path: Path, model: Model, architecture: Architecture, tensors: Sequence[FileTensor]
) -> None:
    """Write `path`; its size is that of the whole file, its blocks on disk only the header's."""
    keys = {"general.architecture": architecture.name, "tokenizer.ggml.model": "none"} | _keys(
        model, architecture, tensors
    )
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for name, value in keys.items():
        out.append(_text(name) + _value(value))
    offset = 0
    for item in tensors:
        out.append(_text(item.name) + struct.pack(f"<I{len(item.dims)}Q", len(item.dims), *item.dims))
        out.append(struct.pack("<IQ", ggml_type(item.type).number, offset))
        offset += item.size_bytes + -item.size_bytes % _ALIGNMENT
    raw = b"".join(out)
    raw += bytes(-len(raw) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + offset)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if value and isinstance(value[0], bool):
        return struct.pack(f"<IIQ{len(value)}?", 9, 7, len(value), *value)
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def _keys(model: Model, architecture: Architecture, tensors: Sequence[FileTensor]) -> dict[str, Value]:
    shapes = {item.name: item.dims for item in tensors}
    keys: dict[str, Value] = {
        "vocab_size": shapes["token_embd.weight"][1],
        "block_count": model.num_layers,
        "context_length": max(model.max_position_embeddings, 512),
        "embedding_length": model.hidden_size,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-6,
        "rope.freq_base": 10000.0,
    }
    keys |= _attention(model, architecture) | _channels(model, architecture) | _recurrent(model, architecture)
    if architecture.name in ("gemma2", "gemma4", "gemma3n"):
        keys |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if model.model_type != "bamba" and architecture.name in (
        "command-r",
        "cohere2",
        "granite",
        "granitemoe",
        "granitehybrid",
    ):
        keys |= {"logit_scale": 0.5, "residual_scale": 0.5, "embedding_scale": 2.0, "attention.scale": 0.1}
    each = shapes.get("per_layer_token_embd.weight", (0,))[0]
    if each or architecture.name == "gemma4":
        keys["embedding_length_per_layer_input"] = each // model.num_layers
    return {f"{architecture.name}.{key}": value for key, value in keys.items()}


def _one_or_each(values: list[int]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else values


def _attention(model: Model, architecture: Architecture) -> dict[str, Value]:
    latent = next((mixer for mixer in model.token_mixers if isinstance(mixer, LatentAttention)), None)
    if latent is not None:
        return {
            "attention.head_count": latent.q_heads,
            "attention.head_count_kv": 1,
            "attention.key_length": latent.kv_lora_rank + latent.rope_dim,
            "attention.value_length": latent.kv_lora_rank,
            "attention.key_length_mla": latent.nope_dim + latent.rope_dim,
            "attention.value_length_mla": latent.v_head_dim,
            "attention.kv_lora_rank": latent.kv_lora_rank,
            "rope.dimension_count": latent.rope_dim,
            **({"attention.q_lora_rank": latent.q_lora_rank} if latent.q_lora_rank else {}),
        }
    each = [
        next((mixer for mixer in layer.token_mixers if isinstance(mixer, FullAttention)), None)
        for layer in model.layers
    ]
    kept = [mixer for mixer in each if mixer is not None]
    if not kept:
        return {"attention.head_count": 0 if architecture.name == "mamba2" else 1}
    windows = {getattr(mixer, "window", getattr(mixer, "chunk", 0)) for mixer in kept} - {0}
    full = next((mixer for mixer in kept if not hasattr(mixer, "window")), kept[0])
    keys: dict[str, Value] = {
        "attention.head_count": _one_or_each([mixer.q_heads if mixer else 0 for mixer in each]),
        "attention.head_count_kv": _one_or_each([mixer.kv_heads if mixer else 0 for mixer in each]),
        "attention.key_length": full.head_dim,
        "attention.value_length": full.v_head_dim,
        "rope.dimension_count": full.head_dim,
    }
    if any(isinstance(mixer, RECURRENT) for mixer in model.token_mixers):
        keys["attention.head_count"] = full.q_heads
    if any(isinstance(mixer, GatedDeltaNet) for mixer in model.token_mixers):
        keys["attention.head_count_kv"] = full.kv_heads
    if windows:
        keys["attention.sliding_window"] = max(windows)
        if architecture.name in ("gemma4", "gemma3n", "cohere2"):
            keys["attention.sliding_window_pattern"] = [
                hasattr(mixer, "window") or _shares_window(model, mixer) for mixer in kept
            ]
        short = next((mixer for mixer in kept if hasattr(mixer, "window")), full)
        keys |= {"attention.key_length_swa": short.head_dim, "attention.value_length_swa": short.v_head_dim}
        keys["rope.dimension_count_swa"] = short.head_dim
    shared = sum(isinstance(mixer, SharedKvAttention) for mixer in kept)
    if shared:
        keys["attention.shared_kv_layers"] = shared
    if architecture.name in ("qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"):
        keys["rope.dimension_sections"] = [full.head_dim // 8, full.head_dim // 8, full.head_dim // 8, 0]
    if architecture.name in ("llama4", "ernie4_5-moe"):
        keys["interleave_moe_layer_step"] = 1
    if architecture.name == "granitehybrid":
        keys["rope.scaling.finetuned"] = model.model_type == "bamba"
    if architecture.name == "gptneox":
        keys["use_parallel_residual"] = True
    return keys


def _shares_window(model: Model, mixer: FullAttention) -> bool:
    if not isinstance(mixer, SharedKvAttention):
        return False
    return any(hasattr(item, "window") for item in model.layers[mixer.source_layer].token_mixers)


def _channels(model: Model, architecture: Architecture) -> dict[str, Value]:
    mixers = [layer.channel_mixer for layer in model.layers]
    routed = next((mixer for mixer in mixers if isinstance(mixer, MixtureOfExperts)), None)
    widths = [
        mixer.intermediate
        if isinstance(mixer, DenseMlp)
        else mixer.dense_intermediate
        if mixer is not None
        else 0
        for mixer in mixers
    ]
    if routed is not None and architecture.name not in ("gemma4", "nemotron_h_moe"):
        dense = max(widths, default=0) or routed.intermediate
        widths = [dense] * len(widths)
    if architecture.name == "nemotron_h_moe":
        widths = [mixer.intermediate if mixer is not None else 0 for mixer in mixers]
    if architecture.name == "qwen":
        widths = [2 * width for width in widths]
    keys: dict[str, Value] = {"feed_forward_length": _one_or_each(widths)}
    if routed is None:
        return keys
    lead = next(index for index, mixer in enumerate(mixers) if isinstance(mixer, MixtureOfExperts))
    return keys | {
        "expert_count": routed.num_experts,
        "expert_used_count": routed.top_k,
        "expert_feed_forward_length": routed.intermediate,
        "expert_shared_feed_forward_length": routed.shared_intermediate,
        "expert_shared_count": max(1, routed.shared_intermediate // routed.intermediate)
        if routed.shared_intermediate
        else 0,
        "leading_dense_block_count": lead,
        "expert_weights_scale": 2.5,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
        "expert_group_count": 8 if routed.num_experts == 256 else 1,
        "expert_group_used_count": 4 if routed.num_experts == 256 else 1,
    }


def _recurrent(model: Model, architecture: Architecture) -> dict[str, Value]:
    mixer = next((item for item in model.token_mixers if isinstance(item, RECURRENT)), None)
    if isinstance(mixer, ShortConvolution):
        return {"shortconv.l_cache": mixer.kernel}
    if isinstance(mixer, Mamba2):
        return {
            "ssm.conv_kernel": mixer.conv_kernel,
            "ssm.inner_size": mixer.inner,
            "ssm.state_size": mixer.state,
            "ssm.time_step_rank": mixer.heads,
            "ssm.group_count": mixer.groups,
        }
    if isinstance(mixer, Mamba1):
        rank = next(tensor.shape[1] for tensor in model.tensors if tensor.name.endswith("dt_proj.weight"))
        return {
            "ssm.conv_kernel": mixer.conv_kernel,
            "ssm.inner_size": mixer.inner,
            "ssm.state_size": mixer.state,
            "ssm.time_step_rank": rank,
        }
    if isinstance(mixer, GatedDeltaNet):
        return {
            "ssm.conv_kernel": mixer.conv_kernel,
            "ssm.inner_size": mixer.v_heads * mixer.v_dim,
            "ssm.state_size": mixer.k_dim,
            "ssm.time_step_rank": mixer.v_heads,
            "ssm.group_count": mixer.k_heads,
            "full_attention_interval": 4,
        }
    return {}
