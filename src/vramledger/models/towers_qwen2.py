"""Vision encoders of Qwen2-VL and Qwen2.5-VL (transformers models/qwen2_vl, models/qwen2_5_vl)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Tower
from vramledger.models.tensors import Component
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    patch_embedding,
    pixels,
    projector_mlp,
    vit_from_config,
)

IMAGE_PIXELS = 12_845_056
"""`max_pixels` of the family's published preprocessor_config.json."""

PLAIN = BlockNames(attention=("attn.qkv", "attn.proj"), mlp=("mlp.fc1", "mlp.fc2"), norms=("norm1", "norm2"))
GATED = BlockNames(
    attention=("attn.qkv", "attn.proj"),
    mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    norms=("norm1", "norm2"),
)


def qwen2_vision(root: Place, config: Config) -> Tower:
    """Qwen2-VL's tower under `visual.`: layer norms and a plain MLP of mlp_ratio times `embed_dim`.

    Its `hidden_size` is the text model's. Raises ConfigError.
    """
    ratio = config.number("mlp_ratio", default=4)
    if not 0 < ratio <= 64:
        raise config.fail("mlp_ratio", f"is {ratio}, outside 0 to 64")
    width = config.integer("embed_dim", default=1280)
    vit = vit_from_config(
        config.replacing(intermediate_size=int(width * ratio)),
        Vit(width=1280, heads=16, inner=5120, layers=32),
        width="embed_dim",
        heads="num_heads",
        layers="depth",
    )
    place = root.at("visual.", component=Component.VISION)
    encoder_block(place.at("visual.blocks.{block}.", copies=vit.layers), vit, PLAIN)
    return _patches_and_merger(place, config, vit, out=config.integer("hidden_size", default=3584), bias=True)


def qwen2_5_vision(root: Place, config: Config) -> Tower:
    """Qwen2.5-VL's tower under `visual.`: RMS norms and a gated MLP. Raises ConfigError."""
    vit = vit_from_config(
        config, Vit(width=3584, heads=16, inner=3420, layers=32), heads="num_heads", layers="depth"
    )
    place = root.at("visual.", component=Component.VISION)
    encoder_block(place.at("visual.blocks.{block}.", copies=vit.layers), vit, GATED, norm_bias=False)
    return _patches_and_merger(
        place, config, vit, out=config.integer("out_hidden_size", default=3584), bias=False
    )


def _patches_and_merger(place: Place, config: Config, vit: Vit, *, out: int, bias: bool) -> Tower:
    """The patch convolution over space and time, and the merger of neighbouring patches."""
    patch = pixels(config, "patch_size", 14)
    merge = config.integer("spatial_merge_size", default=2, maximum=64)
    frames = config.integer("temporal_patch_size", default=2, maximum=1024)
    channels = config.integer("in_channels", "in_chans", default=3, maximum=1024)
    patch_embedding(place, "patch_embed.proj", vit.width, channels, frames, patch, patch, bias=False)
    merger = place.at("visual.merger.", component=Component.PROJECTOR)
    merger.norm("ln_q", vit.width, bias=bias)
    merged = vit.width * merge * merge
    projector_mlp(merger, "mlp.0", "mlp.2", inp=merged, inner=merged, out=out)
    return merged_tower(config, vit, patch=patch, merge=merge, max_pixels=IMAGE_PIXELS)


def merged_tower(config: Config, vit: Vit, *, patch: int, merge: int, max_pixels: int) -> Tower:
    """A tower whose largest image is bounded by an area in pixels that config.json does not state."""
    tokens = max_pixels // (patch * merge) ** 2
    config.assume(
        f"largest image taken as {max_pixels} pixels ({tokens} tokens), the image processor's published "
        "limit; config.json does not say"
    )
    return vit.tower("image", max_item_tokens=tokens, patches_per_token=merge * merge)
