"""MiniMax-M3: the sparse text model behind a rotary CLIP tower (transformers models/minimax_m3_vl)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import (
    Vit,
    encoder_block,
    patch_embedding,
    pixels,
    projector_mlp,
    vit_from_config,
)
from vramledger.models.towers_clip import NAMES
from vramledger.models.towers_qwen2 import merged_tower

IMAGE_PIXELS = 451_584
"""`size.longest_edge` of MiniMaxM3VLImageProcessor, an area."""


def describe(config: Config, model_id: str) -> Model:
    nested = text_config(config, as_type="minimax_m3").replacing(architectures=None)
    text = architectures.describe(nested, model_id)
    vision = config.sub("vision_config")
    compression = vision.optional_sub("img_token_compression_config") or vision
    merge = compression.integer("spatial_merge_size", default=2, maximum=64)
    frames = compression.integer("temporal_patch_size", default=2, maximum=1024)
    channels = vision.integer("num_channels", default=3, maximum=1024)
    patch = pixels(vision, "patch_size", 14)
    vit = vit_from_config(vision, Vit(width=1280, heads=16, inner=5120, layers=32))

    root = Place(prefix="vision_tower.vision_model.", component=Component.VISION)
    patch_embedding(root, "embeddings.patch_embedding", vit.width, channels, frames, patch, patch, bias=False)
    root.norm("pre_layrnorm", vit.width, bias=True)
    encoder_block(root.at(root.prefix + "encoder.layers.{block}.", copies=vit.layers), vit, NAMES)
    connector = root.at("", component=Component.PROJECTOR)
    inner = config.integer("projector_hidden_size", default=6144)
    width = text.hidden_size
    for name, inp in (("multi_modal_projector", vit.width), ("patch_merge_mlp", width * merge * merge)):
        projector_mlp(connector, f"{name}.linear_1", f"{name}.linear_2", inp=inp, inner=inner, out=width)
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(merged_tower(config, vit, patch=patch, merge=merge, max_pixels=IMAGE_PIXELS),),
    )
