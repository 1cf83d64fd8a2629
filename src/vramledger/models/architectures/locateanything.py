"""LocateAnything: Qwen2 behind MoonViT and a three-part connector (modeling_locateanything.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projector_mlp
from vramledger.models.towers_moonvit import merged_patches, moonvit


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config), model_id)
    vision = config.sub("vision_config")
    root = Place(prefix="vision_model.", component=Component.VISION)
    vit = moonvit(root, vision)
    merge = merged_patches(vision)
    connector = root.at("", component=Component.PROJECTOR)
    layers = config.integer("mlp_connector_layers", default=2, maximum=16)
    if layers != 2:
        raise config.fail("mlp_connector_layers", f"is {layers}; only the connector of 2 is described here")
    connector.norm("mlp1.0", vit.width * merge, bias=True)
    projector_mlp(
        connector,
        "mlp1.1",
        "mlp1.3",
        inp=vit.width * merge,
        inner=text.hidden_size,
        out=text.hidden_size,
    )
    return compose(
        text,
        config,
        model_id,
        prefixes={"": "language_model."},
        extra=root.into,
        towers=(vit.tower("image", patches_per_token=merge),),
    )
