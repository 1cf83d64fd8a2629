"""LFM2-VL: LFM2 behind SigLIP 2 (transformers models/lfm2_vl/modeling_lfm2_vl.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import WITHIN, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projector_mlp
from vramledger.models.towers_clip import siglip2_vision


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="lfm2", tied=True), model_id)
    root = Place(prefix="model.vision_tower.vision_model.", component=Component.VISION)
    vit = siglip2_vision(root, config.sub("vision_config"))
    factor = config.integer("downsample_factor", default=2, maximum=64)
    merged = vit.width * factor * factor
    projector = root.at("model.multi_modal_projector.", component=Component.PROJECTOR)
    if config.flag("projector_use_layernorm", default=True):
        projector.norm("layer_norm", merged, bias=True)
    projector_mlp(
        projector,
        "linear_1",
        "linear_2",
        inp=merged,
        inner=config.integer("projector_hidden_size", default=2560),
        out=text.hidden_size,
        bias=config.flag("projector_bias", default=True),
    )
    tokens = config.integer("max_image_tokens", default=256, maximum=65536)
    tiles = config.integer("max_tiles", default=10, maximum=4096)
    tiles += config.flag("use_thumbnail", default=True)
    return compose(
        text,
        config,
        model_id,
        prefixes=WITHIN,
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=tokens * tiles, patches_per_token=factor * factor),),
    )
