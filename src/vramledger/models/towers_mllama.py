"""Llama 3.2 Vision's encoder over tiles (transformers models/mllama/modeling_mllama.py, MllamaVisionModel)."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Tower
from vramledger.models.tensors import Role, hidden, whole
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    positions,
    vector,
    vit_from_config,
)

NAMES = BlockNames(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    mlp=("mlp.fc1", "mlp.fc2"),
    norms=("input_layernorm", "post_attention_layernorm"),
)
RATIOS = 8
"""Aspect ratios of up to four tiles, where `supported_aspect_ratios` is not stated."""


def mllama_vision(place: Place, config: Config) -> tuple[Tower, int, int]:
    """Tensors under `place`; the tower, the tokens a whole image gives the decoder's cross attention, and
    their width. Raises ConfigError."""
    vit = vit_from_config(config, Vit(width=1280, heads=16, inner=5120, layers=32), heads="attention_heads")
    layers_global = config.integer("num_global_layers", default=8, minimum=0, maximum=4096)
    tiles = config.integer("max_num_tiles", default=4, maximum=1024)
    channels = config.integer("num_channels", default=3, maximum=1024)
    patch = pixels(config, "patch_size", 14)
    side = grid_side(config, pixels(config, "image_size", 448), patch)
    tokens = side * side + 1
    ratios = len(config.items("supported_aspect_ratios")) or RATIOS

    vector(place, "class_embedding", vit.width)
    patch_embedding(place, "patch_embedding", vit.width, channels, patch, patch, bias=False)
    gated = place.at(place.prefix + "gated_positional_embedding.")
    gated.tensor("gate", Role.OTHER, whole(1))
    positions(gated, "embedding", vit.width, tokens)
    _tile_table(gated, "tile_embedding.weight", ratios, tiles * tokens * vit.width)
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        tile = place.at(f"{place.prefix}{name}.")
        tile.tensor("gate", Role.OTHER, whole(1))
        _tile_table(tile, "embedding.weight", ratios, tiles * vit.width)
    for norm in ("layernorm_pre", "layernorm_post"):
        place.norm(norm, vit.width, bias=True)
    for name, copies in (("transformer", vit.layers), ("global_transformer", layers_global)):
        block = place.at(f"{place.prefix}{name}.layers.{{block}}.", copies=copies)
        encoder_block(block, vit, NAMES, bias=False, mlp_bias=True, norm_bias=True)
        if name == "global_transformer":
            for gate in ("gate_attn", "gate_ffn"):
                block.tensor(gate, Role.OTHER, whole(1))
    out = config.integer("vision_output_dim", default=7680)
    total = vit.with_layers(vit.layers + layers_global)
    tower = total.tower("image", max_item_tokens=tiles * tokens, patches_per_token=1)
    return replace(tower, kept_hidden_states=out // vit.width - 1), tiles * tokens, out


def _tile_table(place: Place, name: str, ratios: int, size: int) -> None:
    """A row for each aspect ratio and one for padding."""
    place.tensor(name, Role.POSITION_EMBEDDING, whole(ratios + 1), hidden(size))
