"""InternVL in Transformers' own classes (models/internvl/modeling_internvl.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projector_mlp
from vramledger.models.towers_intern import TILES, intern_vit_hf, shuffled


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="qwen2", tied=True), model_id)
    root = Place(prefix="vision_tower.", component=Component.VISION)
    vit, side = intern_vit_hf(root, config.sub("vision_config"))
    merge = shuffled(config, side)
    projector = root.at("multi_modal_projector.", component=Component.PROJECTOR)
    projector.norm("layer_norm", vit.width * merge, bias=True)
    projector_mlp(
        projector,
        "linear_1",
        "linear_2",
        inp=vit.width * merge,
        inner=text.hidden_size,
        out=text.hidden_size,
    )
    tokens = side * side // merge
    config.assume(f"largest image taken as {TILES} tiles and a thumbnail, the image processor's default")
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=tokens * (TILES + 1), patches_per_token=merge),),
    )
