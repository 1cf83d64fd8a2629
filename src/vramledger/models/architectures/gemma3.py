"""Gemma 3 with its SigLIP tower (transformers models/gemma3/modeling_gemma3.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component, Role, hidden
from vramledger.models.towers_clip import siglip_vision


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, as_type="gemma3_text", tied=True), model_id)
    root = Place(prefix="vision_tower.vision_model.", component=Component.VISION)
    vit, side = siglip_vision(root, config.sub("vision_config"))
    tokens = config.integer("mm_tokens_per_image", default=256, maximum=65536)
    if (side * side) % tokens:
        raise config.fail(
            "mm_tokens_per_image", f"{tokens} does not divide the tower's {side * side} patches"
        )
    projector = root.at("multi_modal_projector.", component=Component.PROJECTOR)
    projector.tensor(
        "mm_input_projection_weight", Role.PROJECTOR, hidden(vit.width), hidden(text.hidden_size)
    )
    projector.norm("mm_soft_emb_norm", vit.width)
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=tokens, patches_per_token=side * side // tokens),),
    )
