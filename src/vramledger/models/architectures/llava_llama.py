"""LLaVA 1.5 as first published: a flat Llama config that names its CLIP tower (llava/model/llava_arch.py).

The checkpoint holds the text model and the projector; the tower is loaded from its own repository.
"""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.tensors import Component
from vramledger.models.towers import projection, projector_mlp
from vramledger.models.towers_clip import CLIP_LARGE_336, clip_vision

TOWERS = {"openai/clip-vit-large-patch14-336": CLIP_LARGE_336}


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(config.replacing(model_type="llama", architectures=None), model_id)
    name = config.text("mm_vision_tower")
    if name not in TOWERS:
        raise config.fail("mm_vision_tower", f"{name!r} is not a tower described here")
    root = Place(component=Component.VISION)
    vit, side = clip_vision(root.at("model.vision_tower.vision_tower.vision_model."), TOWERS[name])
    config.assume(f"the tower {name} is loaded from its own repository, not from this checkpoint")
    connector = root.at("model.", component=Component.PROJECTOR)
    kind = config.text("mm_projector_type", default="linear")
    if kind == "linear":
        projection(connector, "mm_projector", text.hidden_size, vit.width, bias=True)
    elif kind == "mlp2x_gelu":
        projector_mlp(
            connector,
            "mm_projector.0",
            "mm_projector.2",
            inp=vit.width,
            inner=text.hidden_size,
            out=text.hidden_size,
        )
    else:
        raise config.fail("mm_projector_type", f"{kind!r} is not a projector described here")
    return compose(
        text,
        config,
        model_id,
        prefixes={},
        extra=root.into,
        towers=(vit.tower("image", max_item_tokens=side * side, patches_per_token=1),),
    )
