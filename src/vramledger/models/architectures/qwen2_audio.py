"""Qwen2-Audio: Qwen2 behind Whisper's encoder (transformers models/qwen2_audio/modeling_qwen2_audio.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.tensors import Component
from vramledger.models.towers import projection
from vramledger.models.towers_whisper import whisper_encoder

POOLED = 2
"""Encoder positions that are averaged into one token (Qwen2AudioEncoder.avg_pooler)."""


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(text_config(config, model_type="qwen2"), model_id)
    root = Place(prefix="audio_tower.", component=Component.AUDIO)
    vit, frames = whisper_encoder(root, config.sub("audio_config"))
    projection(
        root.at("multi_modal_projector.", component=Component.PROJECTOR),
        "linear",
        text.hidden_size,
        vit.width,
        bias=True,
    )
    return compose(
        text,
        config,
        model_id,
        prefixes=BESIDE,
        extra=root.into,
        towers=(vit.tower("audio", max_item_tokens=frames // POOLED, patches_per_token=POOLED),),
    )
