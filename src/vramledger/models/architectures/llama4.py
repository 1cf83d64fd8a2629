"""Llama 4 with its vision encoder (transformers models/llama4/modeling_llama4.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model, Tower
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    grid_side,
    patch_embedding,
    pixels,
    positions,
    projection,
    vector,
    vit_from_config,
)

TILES = 16
"""`max_patches` of Llama4ImageProcessor; a smaller copy of the whole image comes on top."""

NAMES = BlockNames(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    mlp=("mlp.fc1", "mlp.fc2"),
    norms=("input_layernorm", "post_attention_layernorm"),
)


def describe(config: Config, model_id: str) -> Model:
    nested = text_config(config, as_type="llama4_text").replacing(
        architectures=None, quantization_config=config.raw("quantization_config")
    )
    text = architectures.describe(nested, model_id)
    root = Place(prefix="vision_model.", component=Component.VISION)
    vision = config.sub("vision_config")
    tower = _vision(root, vision)
    projection(
        root.at("", component=Component.PROJECTOR),
        "multi_modal_projector.linear_1",
        text.hidden_size,
        vision.integer("vision_output_dim", default=7680),
    )
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(tower,),
    )


def _vision(place: Place, config: Config) -> Tower:
    vit = vit_from_config(config, Vit(width=768, heads=16, inner=5632, layers=34))
    channels = config.integer("num_channels", default=3, maximum=1024)
    patch = pixels(config, "patch_size", 14)
    side = grid_side(config, pixels(config, "image_size", 448), patch)
    ratio = config.number("pixel_shuffle_ratio", default=0.5)
    if not 0.01 < ratio <= 1:
        raise config.fail("pixel_shuffle_ratio", f"is {ratio}, outside 0.01 to 1")
    vector(place, "class_embedding", vit.width)
    positions(place, "positional_embedding_vlm", vit.width, side * side + 1)
    patch_embedding(place, "patch_embedding.linear", vit.width, channels * patch * patch, bias=False)
    for norm in ("layernorm_pre", "layernorm_post"):
        place.norm(norm, vit.width, bias=True)
    encoder_block(place.at("vision_model.model.layers.{block}.", copies=vit.layers), vit, NAMES)
    adapter = place.at("vision_model.vision_adapter.", component=Component.PROJECTOR)
    inner = config.integer("projector_input_dim", default=4096)
    out = config.integer("projector_output_dim", default=4096)
    projection(adapter, "mlp.fc1", inner, vit.inner)
    projection(adapter, "mlp.fc2", out, out)
    tokens = int(side * side * ratio * ratio)
    config.assume(f"largest image taken as {TILES} tiles and one of the whole, the image processor's default")
    return vit.tower(
        "image",
        max_item_tokens=tokens * (TILES + 1),
        patches_per_token=side * side // tokens if tokens else 0,
    )
