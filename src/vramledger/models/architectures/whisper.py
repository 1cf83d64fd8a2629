"""Whisper (transformers models/whisper/modeling_whisper.py): two convolutions halve the frames of a
spectrogram, so one window of audio is max_source_positions encoder positions."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.encdec import (
    LayerNames,
    Stack,
    decoder_stack,
    encoder_stack,
    list_layers,
    stack_from_config,
)
from vramledger.models.model import Model, Tower
from vramledger.models.tensors import AxisKind, Component, Role, axis, hidden, whole

KERNEL = 3


def describe(config: Config, model_id: str) -> Model:
    encoder = stack_from_config(config, "encoder")
    decoder = stack_from_config(config, "decoder")
    width = encoder.width
    rows = config.integer("vocab_size", default=51865)
    sources = config.integer("max_source_positions", default=1500)
    positions = config.integer("max_target_positions", default=448)
    tied = config.flag("tie_word_embeddings", default=True)

    root = Place(prefix="model.")
    _list_encoder(root.at("model.encoder.", component=Component.ENCODER), config, encoder, sources)
    down = root.at("model.decoder.")
    down.embedding("embed_tokens", rows, width)
    _list_positions(down, positions, width)
    layer = down.at(f"{down.prefix}layers.{{layer}}.", range(decoder.count))
    list_layers(layer, decoder, LayerNames(), cross=True, k_bias=False)
    down.final_norm("layer_norm", width, bias=True)
    if not tied:
        root.at("").lm_head("proj_out", rows, width)

    model = assemble(
        config,
        model_id,
        root,
        default_class="WhisperForConditionalGeneration",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=decoder_stack(decoder, max_encoder_tokens=sources),
        encoder_layers=encoder_stack(encoder),
    )
    tower = Tower(
        modality="audio",
        hidden_size=width,
        intermediate_size=encoder.inner,
        num_layers=encoder.count,
        num_heads=encoder.heads,
        max_item_tokens=sources,
        patches_per_token=1,
    )
    return replace(model, towers=(tower,))


def _list_encoder(place: Place, config: Config, stack: Stack, sources: int) -> None:
    width = stack.width
    for name, channels in (("conv1", config.integer("num_mel_bins", default=80)), ("conv2", width)):
        place.tensor(f"{name}.weight", Role.OTHER, hidden(width), whole(channels), whole(KERNEL))
        place.tensor(f"{name}.bias", Role.OTHER, hidden(width))
    _list_positions(place, sources, width)
    layer = place.at(f"{place.prefix}layers.{{layer}}.", range(stack.count))
    list_layers(layer, stack, LayerNames(), cross=False, k_bias=False)
    place.norm("layer_norm", width, bias=True)


def _list_positions(place: Place, positions: int, width: int) -> None:
    table = axis(AxisKind.POSITION, positions)
    place.tensor("embed_positions.weight", Role.POSITION_EMBEDDING, table, hidden(width))
