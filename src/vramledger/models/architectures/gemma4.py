"""Gemma 4 with its vision and audio towers (transformers models/gemma4/modeling_gemma4.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import WITHIN, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projection
from vramledger.models.towers_gemma4 import gemma4_audio, gemma4_vision


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, as_type="gemma4_text", tied=True), model_id)
    root = Place()
    projector = root.at("model.", component=Component.PROJECTOR)
    towers = []
    vision = config.optional_sub("vision_config")
    if vision is not None:
        towers.append(gemma4_vision(root, vision))
        width = vision.integer("hidden_size", default=768)
        projection(projector, "embed_vision.embedding_projection", text.hidden_size, width)
    audio = config.optional_sub("audio_config")
    if audio is not None:
        towers.append(gemma4_audio(root, audio))
        width = audio.integer("output_proj_dims", default=1536)
        projection(projector, "embed_audio.embedding_projection", text.hidden_size, width)
    return compose(text, config, model_id, prefixes=WITHIN, extra=root.into, towers=tuple(towers))
