"""Whisper's audio encoder as other models use it (transformers models/whisper, models/qwen2_audio)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    patch_embedding,
    positions,
    vit_from_config,
)

NAMES = BlockNames(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    mlp=("fc1", "fc2"),
    norms=("self_attn_layer_norm", "final_layer_norm"),
)


def whisper_encoder(place: Place, config: Config) -> tuple[Vit, int]:
    """Tensors under `place`; dimensions and the positions of its longest input. Keys have no bias."""
    vit = vit_from_config(
        config,
        Vit(width=1280, heads=20, inner=5120, layers=32),
        width="d_model",
        heads="encoder_attention_heads",
        inner="encoder_ffn_dim",
        layers="encoder_layers",
    )
    bins = config.integer("num_mel_bins", default=128, maximum=65536)
    frames = config.integer("max_source_positions", default=1500)
    patch_embedding(place, "conv1", vit.width, bins, 3)
    patch_embedding(place, "conv2", vit.width, vit.width, 3)
    positions(place, "embed_positions.weight", vit.width, frames)
    encoder_block(place.at(place.prefix + "layers.{block}.", copies=vit.layers), vit, NAMES, k_bias=False)
    place.norm("layer_norm", vit.width, bias=True)
    return vit, frames
