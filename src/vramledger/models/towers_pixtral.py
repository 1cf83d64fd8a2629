"""Pixtral's vision encoder (transformers models/pixtral/modeling_pixtral.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    vit_from_config,
)

DEFAULTS = Vit(width=1024, heads=16, inner=4096, layers=24)

NAMES = BlockNames(
    attention=("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
    mlp=("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"),
    norms=("attention_norm", "ffn_norm"),
)


def pixtral_vision(place: Place, config: Config) -> tuple[Vit, int]:
    """Tensors of a PixtralVisionModel under `place`; its dimensions and patches a side of its largest image.

    Positions are rotary, so there is no table. Raises ConfigError.
    """
    vit = vit_from_config(config, DEFAULTS)
    channels = config.integer("num_channels", default=3, maximum=1024)
    patch = pixels(config, "patch_size", 16)
    side = grid_side(config, pixels(config, "image_size", 1024), patch)
    patch_embedding(place, "patch_conv", vit.width, channels, patch, patch, bias=False)
    place.norm("ln_pre", vit.width)
    block = place.at(place.prefix + "transformer.layers.{block}.", copies=vit.layers)
    encoder_block(block, vit, NAMES, bias=False)
    return vit, side


def rows_with_breaks(side: int) -> int:
    """Tokens of a square image of `side` x `side`: one break or end token closes each row."""
    return side * (side + 1)
