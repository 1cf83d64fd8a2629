"""Fuyu: Persimmon that reads image patches through one matrix (transformers models/fuyu/modeling_fuyu.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.tensors import Component
from vramledger.models.towers import pixels, projection

IMAGE = (1080, 1920)
"""`size` of FuyuImageProcessor, in pixels."""


def describe(config: Config, model_id: str) -> Model:
    text = architectures.describe(config.replacing(model_type="persimmon", architectures=None), model_id)
    patch = pixels(config, "patch_size", 30)
    channels = config.integer("num_channels", default=3, maximum=1024)
    root = Place(component=Component.PROJECTOR)
    projection(root, "vision_embed_tokens", text.hidden_size, channels * patch * patch, bias=True)
    rows, columns = (-(-side // patch) for side in IMAGE)
    config.assume(
        f"an image of {IMAGE[0]} x {IMAGE[1]} pixels, the image processor's default, is "
        f"{rows * (columns + 1)} tokens, one newline a row included; there is no tower"
    )
    return compose(
        text,
        config,
        model_id,
        prefixes={"": "language_model."},
        extra=root.into,
        towers=(),
    )
