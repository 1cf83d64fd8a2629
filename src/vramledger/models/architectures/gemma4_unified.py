"""Gemma 4 12B: patches and audio samples are projected straight into the text model, without towers
(transformers models/gemma4_unified/modeling_gemma4_unified.py)."""

from __future__ import annotations

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import WITHIN, compose, text_config
from vramledger.models.tensors import AxisKind, Component, Role, axis, hidden, whole
from vramledger.models.towers import pixels, projection


def describe(config: Config, model_id: str) -> Model:
    nested = text_config(config, as_type="gemma4_unified_text", tied=True)
    text = architectures.describe(nested.replacing(hidden_size_per_layer_input=0), model_id)
    root = Place()
    vision = config.optional_sub("vision_config")
    if vision is not None:
        _patches(root, vision, text.hidden_size)
    audio = config.optional_sub("audio_config")
    if audio is not None:
        width = audio.integer("audio_embed_dim", default=640)
        place = root.at("model.embed_audio.", component=Component.AUDIO)
        projection(place, "embedding_projection", text.hidden_size, width)
    return compose(text, config, model_id, prefixes=WITHIN, extra=root.into, towers=())


def _patches(root: Place, config: Config, out: int) -> None:
    """Norm, matrix and norm over pixels of a pooled patch, learned positions, and the projection."""
    width = config.integer("mm_embed_dim", default=3840)
    pool = config.integer("pooling_kernel_size", default=3, maximum=64)
    side = pixels(config, "patch_size", 16) * pool
    flat = 3 * side * side
    rows = config.integer("mm_posemb_size", default=1120)
    place = root.at("model.vision_embedder.", component=Component.VISION)
    table = axis(AxisKind.POSITION, rows)
    place.tensor("pos_embedding", Role.POSITION_EMBEDDING, table, whole(2), hidden(width))
    place.norm("patch_ln1", flat, bias=True)
    place.linear("patch_dense", Role.OTHER, hidden(width), whole(flat), bias=True)
    place.norm("patch_ln2", width, bias=True)
    place.norm("pos_norm", width, bias=True)
    projection(
        root.at("model.embed_vision.", component=Component.PROJECTOR), "embedding_projection", out, width
    )
