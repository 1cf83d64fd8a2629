"""InternVL as its authors publish it (modeling_internvl_chat.py): InternViT, pixel shuffle, `mlp1`, any text model."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projector_mlp
from vramledger.models.towers_intern import TILES, intern_vit, shuffled


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, "llm_config"), model_id)
    root = Place(prefix="vision_model.", component=Component.VISION)
    vit, side = intern_vit(root, config.sub("vision_config"))
    merge = shuffled(config, side)
    projector = root.at("", component=Component.PROJECTOR)
    projector.norm("mlp1.0", vit.width * merge, bias=True)
    projector_mlp(
        projector,
        "mlp1.1",
        "mlp1.3",
        inp=vit.width * merge,
        inner=text.hidden_size,
        out=text.hidden_size,
    )
    tiles = config.integer("max_dynamic_patch", default=TILES, maximum=4096)
    tiles += config.flag("use_thumbnail", default=True)
    tokens = side * side // merge
    return compose(
        text,
        config,
        model_id,
        prefixes={"": "language_model."},
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=tokens * tiles, patches_per_token=merge),),
    )
