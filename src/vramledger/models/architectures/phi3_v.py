"""Phi-3 and Phi-3.5 vision: Phi-3 behind CLIP, with tiles joined by learned separators
(microsoft/Phi-3.5-vision-instruct, modeling_phi3_v.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.tensors import Component, Role, hidden, whole
from vramledger.models.towers import projector_mlp
from vramledger.models.towers_clip import CLIP_LARGE_336, clip_vision

PROCESSORS = {"clip_vision_model": CLIP_LARGE_336}
TILE_PATCHES = 4
"""Neighbouring patches that are joined before projection."""


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(config.replacing(model_type="phi3", architectures=None), model_id)
    name = config.sub("img_processor").text("name")
    if name not in PROCESSORS:
        raise config.fail("img_processor", f"names {name!r}, which is not described here")
    root = Place(component=Component.VISION)
    base = "model.vision_embed_tokens."
    vit, _ = clip_vision(root.at(f"{base}img_processor.vision_model."), PROCESSORS[name])
    config.assume("the tower is named, not described: openai/clip-vit-large-patch14-336 taken")
    joined = TILE_PATCHES * vit.width
    projector = root.at(base, component=Component.PROJECTOR)
    for separator, rank in (("glb_GN", 2), ("sub_GN", 3)):
        projector.tensor(separator, Role.OTHER, *(whole(1) for _ in range(rank)), hidden(joined))
    width = text.hidden_size
    projector_mlp(projector, "img_projection.0", "img_projection.2", inp=joined, inner=width, out=width)
    return compose(
        text,
        config,
        model_id,
        prefixes={},
        extra=root.into,
        towers=(vit.tower("image", patches_per_token=TILE_PATCHES),),
    )
