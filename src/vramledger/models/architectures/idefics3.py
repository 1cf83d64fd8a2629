"""Idefics3 and SmolVLM: Llama behind SigLIP, pixels shuffled into fewer tokens
(transformers models/idefics3/modeling_idefics3.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projection
from vramledger.models.towers_clip import siglip_vision


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="llama"), model_id)
    root = Place(prefix="model.vision_model.", component=Component.VISION)
    vit, side = siglip_vision(root, config.sub("vision_config"), head=False)
    factor = config.integer("scale_factor", default=2, maximum=64)
    if side % factor:
        raise config.fail("scale_factor", f"{factor} does not divide a side of {side} patches")
    connector = root.at("model.connector.modality_projection.", component=Component.PROJECTOR)
    projection(connector, "proj", text.hidden_size, vit.width * factor * factor)
    return compose(
        text,
        config,
        model_id,
        prefixes={"model.": "model.text_model."},
        extra=root.into,
        towers=(vit.tower("image", patches_per_token=factor * factor),),
    )
