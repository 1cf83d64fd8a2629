"""LLaVA: any text model behind a CLIP, SigLIP or Pixtral tower (transformers models/llava/modeling_llava.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import Vit, projector_mlp
from vramledger.models.towers_clip import clip_vision, siglip_vision
from vramledger.models.towers_pixtral import pixtral_vision, rows_with_breaks


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="llama"), model_id)
    root = Place(component=Component.VISION)
    vit, tokens = named_tower(root, config.sub("vision_config"))
    llava_projector(root, config, vit, text.hidden_size)
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=tokens, patches_per_token=1),),
    )


def named_tower(root: Place, config: Config) -> tuple[Vit, int]:
    """The tower that a vision_config names, under `vision_tower.`, and the tokens of its largest image."""
    kind = config.text("model_type", default="clip_vision_model")
    if kind == "pixtral":
        vit, side = pixtral_vision(root.at("vision_tower."), config)
        return vit, rows_with_breaks(side)
    place = root.at("vision_tower.vision_model.")
    if kind == "clip_vision_model":
        vit, side = clip_vision(place, config)
    elif kind == "siglip_vision_model":
        vit, side = siglip_vision(place, config)
    else:
        raise config.fail("model_type", f"{kind!r} is not a tower described here (clip, siglip, pixtral)")
    return vit, side * side


def llava_projector(root: Place, config: Config, vit: Vit, width: int) -> None:
    """Two matrices from the tower's chosen layers to the text model's width."""
    layers = len(config.items("vision_feature_layer")) if _is_list(config) else 1
    projector_mlp(
        root.at("multi_modal_projector.", component=Component.PROJECTOR),
        "linear_1",
        "linear_2",
        inp=vit.width * layers,
        inner=width,
        out=width,
        bias=config.flag("multimodal_projector_bias", default=True),
    )


def _is_list(config: Config) -> bool:
    return isinstance(config.raw("vision_feature_layer"), list | tuple)
