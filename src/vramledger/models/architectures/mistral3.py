"""Mistral 3 vision models: a Pixtral tower with a patch merger before any Mistral text model
(transformers models/mistral3/modeling_mistral3.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, WITHIN, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projection, projector_mlp
from vramledger.models.towers_pixtral import pixtral_vision, rows_with_breaks


def describe(config: Config, model_id: str) -> Model:
    nested = text_config(config, model_type="mistral", tied=True)
    text = architectures.describe(nested, model_id)
    # Mistral Small 3.1 and 3.2 were saved before Transformers put all parts under `model.`.
    old = nested.text("model_type") == "mistral"
    base, prefixes = ("", BESIDE) if old else ("model.", WITHIN)
    root = Place(component=Component.VISION)
    vit, side = pixtral_vision(root.at(f"{base}vision_tower."), config.sub("vision_config"))
    merge = config.integer("spatial_merge_size", default=2, maximum=64)
    bias = config.flag("multimodal_projector_bias", default=False)
    projector = root.at(f"{base}multi_modal_projector.", component=Component.PROJECTOR)
    projector.norm("norm", vit.width)
    projection(projector, "patch_merger.merging_layer", vit.width, vit.width * merge * merge)
    projector_mlp(
        projector,
        "linear_1",
        "linear_2",
        inp=vit.width,
        inner=text.hidden_size,
        out=text.hidden_size,
        bias=bias,
    )
    return compose(
        text,
        config,
        model_id,
        prefixes=prefixes,
        extra=root.into,
        towers=(
            vit.tower(
                "image",
                max_item_tokens=rows_with_breaks(max(side // merge, 1)),
                patches_per_token=merge * merge,
            ),
        ),
    )
