"""xGen-MM: Phi-3 behind SigLIP and a perceiver resampler (Salesforce/xgen-mm-phi3-mini-instruct, modeling_xgenmm.py).

The text model's embedding and head get a few rows of their own beside the trained ones, and the head a bias.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models import architectures
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.multimodal import compose, text_config
from vramledger.models.tensors import (
    AxisKind,
    Component,
    Role,
    Stage,
    axis,
    hidden,
    intermediate,
    kv_heads,
    q_heads,
    vocab,
)
from vramledger.models.towers import projection
from vramledger.models.towers_clip import siglip_vision

ADDED_ROWS = 3
"""<image>, <|endofchunk|> and a padding token."""
PREFIX = "vlm.lang_model."

SIGLIP_NAME = "google/siglip-so400m-patch14-384"
SIGLIP = Config(
    {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 384,
        "patch_size": 14,
    },
    SIGLIP_NAME,
)
"""The tower that XGenMMVisionEncoderConfig names by default."""

LATENTS, DEPTH, HEADS, HEAD_DIM, MULTIPLE = 128, 6, 16, 96, 4
"""The resampler of the class: latents, layers, heads and their width, feed-forward multiple."""


def describe(config: Config, model_id: str) -> Model:
    nested = text_config(config, as_type="phi3").replacing(architectures=None)
    text = architectures.describe(nested, model_id)
    encoder = config.sub("vision_encoder_config")
    name = encoder.text("model_name", default=SIGLIP_NAME)
    if name != SIGLIP_NAME:
        raise encoder.fail("model_name", f"{name!r} is not a tower described here ({SIGLIP_NAME})")
    root = Place(component=Component.VISION)
    vit, side = siglip_vision(root.at("vlm.vision_encoder."), SIGLIP)
    config.assume(f"tower and resampler are the class's defaults ({SIGLIP_NAME}, {LATENTS} latents)")
    _resampler(root.at("vlm.vision_tokenizer.", component=Component.PROJECTOR), vit.width, text.hidden_size)
    _added_rows(root.at(PREFIX, component=Component.DECODER), text)
    whole = compose(
        text,
        config,
        model_id,
        prefixes={"": PREFIX},
        extra=root.into,
        towers=(vit.tower("image", patches_per_token=max(side * side // LATENTS, 1)),),
    )
    return replace(whole, vocab_size=text.vocab_size + ADDED_ROWS)


def _added_rows(place: Place, text: Model) -> None:
    """The rows for added tokens, and biases of the head."""
    width, rows = text.hidden_size, text.vocab_size
    place.embedding("model.embed_tokens.additional_embedding", ADDED_ROWS, width)
    last = place.at(PREFIX, stage=Stage.LAST)
    last.tensor("lm_head.bias", Role.LM_HEAD, vocab(rows))
    last.linear("lm_head.additional_fc", Role.LM_HEAD, vocab(ADDED_ROWS), hidden(width), bias=True)


def _resampler(place: Place, width: int, out: int) -> None:
    """Latents attend to patches and themselves in each layer, then pass a feed-forward."""
    place.tensor("latents", Role.OTHER, axis(AxisKind.POSITION, LATENTS), hidden(width))
    attend = place.at("vlm.vision_tokenizer.layers.{block}.0.", copies=DEPTH)
    attend.norm("norm_media", width, bias=True)
    attend.norm("norm_latents", width, bias=True)
    heads = q_heads(HEADS, HEAD_DIM)
    both = kv_heads(HEADS, HEAD_DIM) + kv_heads(HEADS, HEAD_DIM)
    attend.linear("to_q", Role.Q, heads, hidden(width))
    attend.linear("to_kv", Role.QKV, both, hidden(width))
    attend.linear("to_out", Role.O, hidden(width), heads)
    feed = place.at("vlm.vision_tokenizer.layers.{block}.1.", copies=DEPTH)
    feed.norm("0", width, bias=True)
    feed.linear("1", Role.UP, intermediate(MULTIPLE * width), hidden(width))
    feed.linear("3", Role.DOWN, hidden(width), intermediate(MULTIPLE * width))
    place.norm("norm", width, bias=True)
    projection(place, "projection", out, width, bias=True)
