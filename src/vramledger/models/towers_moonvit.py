"""MoonViT: the vision encoder of Kimi and LocateAnything (moonshotai/MoonViT-SO-400M, modeling_moonvit.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    patch_embedding,
    pixels,
    positions,
    vit_from_config,
)

DEFAULTS = Vit(width=1152, heads=16, inner=4304, layers=27)

NAMES = BlockNames(attention=("wqkv", "wo"), mlp=("mlp.fc0", "mlp.fc1"), norms=("norm0", "norm1"))


def moonvit(place: Place, config: Config, *, prefix: str = "") -> Vit:
    """Tensors under `place`; its dimensions. `prefix` stands before the dimension keys ("vt_" in Kimi-K2.5).

    Positions are a learned square table that is interpolated, and rotary on top. Raises ConfigError.
    """
    vit = vit_from_config(
        config,
        DEFAULTS,
        width=f"{prefix}hidden_size",
        heads=f"{prefix}num_attention_heads",
        inner=f"{prefix}intermediate_size",
        layers=f"{prefix}num_hidden_layers",
    )
    patch = pixels(config, "patch_size", 14)
    patch_embedding(place, "patch_embed.proj", vit.width, 3, patch, patch)
    high = config.integer("init_pos_emb_height", "pos_emb_height", default=64, maximum=65536)
    wide = config.integer("init_pos_emb_width", "pos_emb_width", default=64, maximum=65536)
    positions(place, "patch_embed.pos_emb.weight", vit.width, high, wide)
    encoder_block(place.at(place.prefix + "encoder.blocks.{block}.", copies=vit.layers), vit, NAMES)
    place.norm("encoder.final_layernorm", vit.width, bias=True)
    return vit


def merged_patches(config: Config, key: str = "merge_kernel_size") -> int:
    """Patches that become one token."""
    sides = config.integers(key, minimum=1, maximum=64) or (2, 2)
    if len(sides) != 2:
        raise config.fail(key, f"must be two numbers, not {len(sides)}")
    return sides[0] * sides[1]
