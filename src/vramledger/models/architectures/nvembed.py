"""NV-Embed: bidirectional Mistral and a latent attention that pools its states (nvidia/NV-Embed-v2, modeling_nvembed.py)."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.mixers import EncoderAttention, FullAttention, Layer
from vramledger.models.model import Model
from vramledger.models.multimodal import compose, text_config
from vramledger.models.tensors import (
    AxisKind,
    Component,
    Role,
    axis,
    gate_up,
    hidden,
    intermediate,
    kv_heads,
    q_heads,
)


def describe(config: Config, model_id: str) -> Model:
    nested = text_config(config, as_type="mistral").replacing(architectures=["MistralModel"])
    text = architectures.describe(nested, model_id)
    root = Place(prefix="latent_attention_model.", component=Component.PROJECTOR)
    _latent_attention(root, config.sub("latent_attention_config"), text.hidden_size)
    whole = compose(
        text,
        config,
        model_id,
        prefixes={"": "embedding_model."},
        extra=root.into,
        towers=(),
    )
    return replace(whole, is_pooling=True, layers=tuple(_bidirectional(layer) for layer in whole.layers))


def _latent_attention(place: Place, config: Config, width: int) -> None:
    """States attend to learned latents, then pass a gated feed-forward of four times the width."""
    width = config.integer("hidden_dim", "latent_dim", default=width)
    heads = config.integer("num_cross_heads", default=8)
    head_dim = config.integer("cross_dim_head", default=width)
    latents = config.integer("num_latents_value", default=512)
    multiple = config.integer("mult", default=4, maximum=64)
    place.tensor("latents", Role.OTHER, axis(AxisKind.POSITION, latents), hidden(width))
    cross = place.at("latent_attention_model.cross_attend_blocks.0.")
    cross.linear("fn.to_q", Role.Q, q_heads(heads, head_dim), hidden(width))
    both = kv_heads(heads, head_dim) + kv_heads(heads, head_dim)
    cross.linear("fn.to_kv", Role.QKV, both, hidden(width))
    cross.linear("fn.to_out", Role.O, hidden(width), q_heads(heads, head_dim))
    cross.norm("norm", width, bias=True)
    cross.norm("norm_context", width, bias=True)
    feed = place.at("latent_attention_model.cross_attend_blocks.1.")
    feed.norm("norm", width, bias=True)
    feed.linear("fn.net.0", Role.GATE_UP, gate_up(multiple * width), hidden(width), bias=True)
    feed.linear("fn.net.2", Role.DOWN, hidden(width), intermediate(multiple * width), bias=True)


def _bidirectional(layer: Layer) -> Layer:
    """The same layer with attention over the whole text, which keeps nothing between steps."""
    mixers = tuple(
        EncoderAttention(
            q_heads=mixer.q_heads,
            kv_heads=mixer.kv_heads,
            head_dim=mixer.head_dim,
            v_head_dim=mixer.v_head_dim,
        )
        if isinstance(mixer, FullAttention)
        else mixer
        for mixer in layer.token_mixers
    )
    return replace(layer, token_mixers=mixers)
