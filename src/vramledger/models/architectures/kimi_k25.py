"""Kimi K2.5 and its successors: DeepSeek-V3's layout behind MoonViT (transformers models/kimi_k25)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projector_mlp
from vramledger.models.towers_moonvit import merged_patches, moonvit

PATCHES = 16384
"""Most patches of one image in the family's image processor."""


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="deepseek_v3"), model_id)
    vision = config.sub("vision_config")
    root = Place(prefix="vision_tower.", component=Component.VISION)
    vit = moonvit(root, vision, prefix="vt_" if "vt_hidden_size" in vision else "")
    merge = merged_patches(vision)
    projector = root.at("mm_projector.", component=Component.PROJECTOR)
    projector.norm("pre_norm", vit.width, bias=True)
    merged = vit.width * merge
    projector_mlp(projector, "proj.0", "proj.2", inp=merged, inner=merged, out=text.hidden_size)
    config.assume(f"largest image taken as {PATCHES} patches, the image processor's limit")
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=PATCHES // merge, patches_per_token=merge),),
    )
