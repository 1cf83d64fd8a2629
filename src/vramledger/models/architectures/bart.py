"""BART (transformers models/bart/modeling_bart.py). Encoder and decoder share one embedding with the head."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.encdec import (
    LayerNames,
    decoder_stack,
    encoder_stack,
    list_layers,
    stack_from_config,
)
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Component, Role, axis, hidden, vocab, whole

POSITION_OFFSET = 2
"""Rows that BART's position tables hold before the first position."""


def describe(config: Config, model_id: str) -> Model:
    encoder = stack_from_config(config, "encoder")
    decoder = stack_from_config(config, "decoder")
    width = encoder.width
    rows = config.integer("vocab_size", default=50265)
    positions = config.integer("max_position_embeddings", default=1024)
    tied = config.flag("tie_word_embeddings", default=True)

    root = Place(prefix="model.")
    root.embedding("shared", rows, width)
    for side, stack, component in (
        ("encoder", encoder, Component.ENCODER),
        ("decoder", decoder, Component.DECODER),
    ):
        top = root.at(f"model.{side}.", component=component)
        table = axis(AxisKind.POSITION, positions + POSITION_OFFSET)
        top.tensor("embed_positions.weight", Role.POSITION_EMBEDDING, table, hidden(width))
        top.norm("layernorm_embedding", width, bias=True)
        layer = top.at(f"{top.prefix}layers.{{layer}}.", range(stack.count))
        list_layers(layer, stack, LayerNames(), cross=side == "decoder")
    root.at("").tensor("final_logits_bias", Role.OTHER, whole(1), vocab(rows), parameter=False)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    return assemble(
        config,
        model_id,
        root,
        default_class="BartForConditionalGeneration",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=decoder_stack(decoder, max_encoder_tokens=positions),
        encoder_layers=encoder_stack(encoder),
    )
