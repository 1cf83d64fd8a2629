"""Qwen3-VL: Qwen3 behind the vision tower it shares with Qwen3.5 (transformers models/qwen3_vl)."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models import architectures
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import WITHIN, compose, text_config
from vramledger.models.towers_qwen import qwen3_vision_tower

DEEPSTACK = (8, 16, 24)


def describe(config: Config, model_id: str) -> Model:
    return qwen3_with_tower(config, model_id, as_type="qwen3")


def qwen3_with_tower(config: Config, model_id: str, *, as_type: str) -> Model:
    """A text model of `as_type` and the tower under `model.visual.`.

    The class rotates by sections whether or not the file lists them (mrope_section defaults to 24, 20, 20).
    """
    text = architectures.describe(text_config(config, as_type=as_type), model_id)
    rope = tuple(replace(item, scaling="mrope") if item.scaling == "default" else item for item in text.rope)
    text = replace(text, rope=rope)
    tensors, tower = qwen3_vision_tower(config.sub("vision_config"), deepstack_default=DEEPSTACK)
    return compose(text, config, model_id, prefixes=WITHIN, extra=tensors, towers=(tower,))
