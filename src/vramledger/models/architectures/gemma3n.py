"""Gemma 3n with MobileNet-V5 and an audio conformer (transformers models/gemma3n/modeling_gemma3n.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import WITHIN, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers_gemma3n import gemma3n_audio, gemma3n_embedder
from vramledger.models.towers_mobilenet5 import NAME, OUTPUT, mobilenet_v5


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, as_type="gemma3n_text", tied=True), model_id)
    root = Place()
    towers = []
    vision = config.optional_sub("vision_config")
    if vision is not None:
        name = vision.text("architecture", default=NAME)
        if name != NAME:
            raise vision.fail("architecture", f"{name!r} is not a tower described here ({NAME})")
        place = root.at("model.vision_tower.timm_model.", component=Component.VISION)
        tokens = config.integer("vision_soft_tokens_per_image", default=256, maximum=65536)
        towers.append(mobilenet_v5(place, tokens=tokens))
        gemma3n_embedder(root, "embed_vision", vision, width=OUTPUT, out=text.hidden_size)
    audio = config.optional_sub("audio_config")
    if audio is not None:
        tokens = config.integer("audio_soft_tokens_per_image", default=188, maximum=65536)
        tower = gemma3n_audio(root, audio, tokens=tokens)
        towers.append(tower)
        gemma3n_embedder(root, "embed_audio", audio, width=tower.hidden_size, out=text.hidden_size)
    return compose(text, config, model_id, prefixes=WITHIN, extra=root.into, towers=tuple(towers))
