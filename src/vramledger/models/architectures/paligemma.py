"""PaliGemma: Gemma behind SigLIP through one matrix (transformers models/paligemma/modeling_paligemma.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projection
from vramledger.models.towers_clip import siglip_vision


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="gemma", tied=True), model_id)
    root = Place(prefix="vision_tower.vision_model.", component=Component.VISION)
    vit, side = siglip_vision(root, config.sub("vision_config"), head=False)
    projector = root.at("multi_modal_projector.", component=Component.PROJECTOR)
    projection(projector, "linear", text.hidden_size, vit.width, bias=True)
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=side * side, patches_per_token=1),),
    )
