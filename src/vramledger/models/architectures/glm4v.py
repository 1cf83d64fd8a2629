"""GLM-4.1V: GLM-4 behind a convolving vision tower (transformers models/glm4v/modeling_glm4v.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place, gated_mlp
from vramledger.models.config import Config
from vramledger.models.model import Model, Tower
from vramledger.models.multimodal import WITHIN, compose, text_config
from vramledger.models.tensors import Component, Role, hidden, whole
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    positions,
    projection,
    vit_from_config,
)
from vramledger.models.towers_qwen2 import merged_tower

IMAGE_PIXELS = 28 * 28 * 15000
"""`size.longest_edge` of Glm4vImageProcessor, an area over two frames."""

NAMES = BlockNames(
    attention=("attn.qkv", "attn.proj"),
    mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    norms=("norm1", "norm2"),
)


def describe(config: Config, model_id: str) -> Model:
    if "text_config" in config:
        text_keys = text_config(config, as_type="glm4").replacing(architectures=None)
    else:
        text_keys = config.replacing(model_type="glm4", architectures=None)
    text = architectures.describe(text_keys, model_id)
    root = Place(prefix="model.visual.", component=Component.VISION)
    tower = _vision(root, config.sub("vision_config"))
    return compose(
        text,
        config,
        model_id,
        prefixes=WITHIN,
        extra=root.into,
        towers=(tower,),
    )


def _vision(place: Place, config: Config) -> Tower:
    """The tower: its blocks' MLP is as wide as the output, the merger's as wide as `intermediate_size`."""
    out = config.integer("out_hidden_size", default=4096)
    context = config.integer("intermediate_size", default=13696)
    vit = vit_from_config(
        config.replacing(intermediate_size=out),
        Vit(width=1536, heads=12, inner=out, layers=24),
        heads="num_heads",
        layers="depth",
    )
    patch = pixels(config, "patch_size", 14)
    side = grid_side(config, pixels(config, "image_size", 336), patch)
    merge = config.integer("spatial_merge_size", default=2, maximum=64)
    frames = config.integer("temporal_patch_size", default=2, maximum=1024)
    channels = config.integer("in_channels", default=3, maximum=1024)
    positions(place, "embeddings.position_embedding.weight", vit.width, side * side)
    patch_embedding(place, "patch_embed.proj", vit.width, channels, frames, patch, patch)
    place.norm("post_conv_layernorm", vit.width)
    encoder_block(
        place.at("model.visual.blocks.{block}.", copies=vit.layers),
        vit,
        NAMES,
        bias=config.flag("attention_bias", default=False),
        out_bias=False,
        mlp_bias=False,
        norm_bias=False,
    )
    place.norm("post_layernorm", vit.width)
    merger = place.at(place.prefix, component=Component.PROJECTOR)
    merger.tensor(
        "downsample.weight", Role.PROJECTOR, hidden(out), hidden(vit.width), whole(merge), whole(merge)
    )
    merger.tensor("downsample.bias", Role.PROJECTOR, hidden(out))
    projection(merger, "merger.proj", out, out)
    merger.norm("merger.post_projection_norm", out, bias=True)
    roles = (Role.PROJECTOR, Role.PROJECTOR, Role.PROJECTOR)
    gated_mlp(merger, "merger", width=out, inner=context, roles=roles)
    return merged_tower(config, vit, patch=patch, merge=merge, max_pixels=IMAGE_PIXELS // frames)
