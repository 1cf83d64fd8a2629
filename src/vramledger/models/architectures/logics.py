"""Logics-Thinking: Qwen3 behind ConvNeXt and SigLIP 2 together (Logics-MLLM/Logics-Thinking-8B, modeling_logics.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.tensors import Component
from vramledger.models.towers import projector_mlp, vector
from vramledger.models.towers_clip import siglip_vision
from vramledger.models.towers_convnext import convnext_xxlarge

TOWERS = "convnext-1024,siglip2-384"


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(config.replacing(model_type="qwen3", architectures=None), model_id)
    name = config.text("mm_vision_tower")
    if name != TOWERS:
        raise config.fail("mm_vision_tower", f"{name!r} is not a pair of towers described here ({TOWERS})")
    if config.text("mm_projector_type") != "mlp2x_gelu":
        raise config.fail("mm_projector_type", "is not mlp2x_gelu, the one described here")
    root = Place(component=Component.VISION)
    base = "model.vision_tower.vision_towers."
    convnext = convnext_xxlarge(root.at(f"{base}0.vision_tower."))
    siglip = config.sub("siglip_config")
    layers = siglip.num_layers() - 1
    if layers < 1:
        raise siglip.fail("num_hidden_layers", "leaves no layer below the last, which is not stored")
    vit, _ = siglip_vision(
        root.at(f"{base}1.vision_tower.vision_model."), siglip, stored_layers=layers, head=False
    )
    joined = convnext.hidden_size + vit.width
    if config.integer("mm_hidden_size", default=joined) != joined:
        raise config.fail("mm_hidden_size", f"is not the {joined} that the two towers give together")
    width = text.hidden_size
    projector = root.at("model.", component=Component.PROJECTOR)
    projector_mlp(projector, "mm_projector.0", "mm_projector.2", inp=joined, inner=width, out=width)
    vector(projector, "image_newline", width)
    return compose(
        text,
        config,
        model_id,
        prefixes={},
        extra=root.into,
        towers=(vit.tower("image", patches_per_token=1), convnext),
    )
