"""SeamlessM4T v2: text and speech encoders, a text decoder, and speech output in two further networks
(transformers models/seamless_m4t_v2/modeling_seamless_m4t_v2.py).

The text decoder is the model's decoder and the text encoder its encoder; speech input (a conformer with an
adapter), text-to-unit and vocoder are listed as audio.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models.blocks import Place, attention, plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.encdec import (
    LayerNames,
    Stack,
    decoder_stack,
    encoder_stack,
    list_attention,
    list_layers,
    stack_from_config,
)
from vramledger.models.model import Model, Tower
from vramledger.models.seamless_speech import list_vocoder, predictor
from vramledger.models.tensors import Component, Role, hidden, whole

NAMES = LayerNames(cross="cross_attention", ffn="ffn", ffn_norm="ffn_layer_norm")
CONFORMER_NAMES = ("linear_q", "linear_k", "linear_v", "linear_out")
UNIT_KERNEL = 7
WIDTH = ("hidden_size",)


def describe(config: Config, model_id: str) -> Model:
    encoder = stack_from_config(config, "encoder", width_keys=WIDTH)
    decoder = stack_from_config(config, "decoder", width_keys=WIDTH)
    width = encoder.width
    rows = config.integer("vocab_size")
    positions = config.integer("max_position_embeddings", default=4096)
    tied = config.flag("tie_word_embeddings", default=True)
    speech = _speech_stack(config, width)

    root = Place()
    root.embedding("shared", rows, width)
    _list_stack(root.at("text_encoder.", component=Component.ENCODER), encoder, cross=False)
    _list_stack(root.at("text_decoder."), decoder, cross=True)
    if not tied:
        root.lm_head("lm_head", rows, width)
    _list_speech_encoder(root.at("speech_encoder.", component=Component.AUDIO), config, speech)
    _list_units(root.at("t2u_model.model.", component=Component.AUDIO), config, width)
    list_vocoder(root.at("vocoder.", component=Component.AUDIO), config)

    model = assemble(
        config,
        model_id,
        root,
        default_class="SeamlessM4Tv2Model",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=decoder_stack(decoder, max_encoder_tokens=positions),
        encoder_layers=encoder_stack(encoder),
    )
    tower = Tower(
        modality="audio",
        hidden_size=width,
        intermediate_size=speech.inner,
        num_layers=speech.count,
        num_heads=speech.heads,
    )
    return replace(model, towers=(tower,))


def _list_stack(place: Place, stack: Stack, *, cross: bool) -> None:
    layer = place.at(f"{place.prefix}layers.{{layer}}.", range(stack.count))
    list_layers(layer, stack, NAMES, cross=cross)
    place.norm("layer_norm", stack.width, bias=True)


def _speech_stack(config: Config, width: int) -> Stack:
    heads = config.integer("speech_encoder_attention_heads", default=16)
    if width % heads:
        raise config.fail("hidden_size", f"{width} does not divide by speech_encoder_attention_heads {heads}")
    return Stack(
        width=width,
        count=config.num_layers("speech_encoder_layers", default=24),
        heads=heads,
        inner=config.integer("speech_encoder_intermediate_size", default=4096),
    )


def _list_speech_encoder(place: Place, config: Config, stack: Stack) -> None:
    """Features, conformer layers, a last feed-forward and the adapter that shortens the sequence."""
    width = stack.width
    features = config.integer("feature_projection_input_dim", default=160)
    place.norm("feature_projection.layer_norm", features, bias=True)
    place.linear("feature_projection.projection", Role.PROJECTOR, hidden(width), whole(features), bias=True)
    layer = place.at(f"{place.prefix}encoder.layers.{{block}}.", copies=stack.count)
    for name in ("ffn1", "ffn2"):
        layer.norm(f"{name}_layer_norm", width, bias=True)
        _list_feed_forward(layer, name, stack)
    _list_conformer_attention(layer, stack)
    if config.text("position_embeddings_type", default="relative_key") == "relative_key":
        left = config.integer("left_max_position_embeddings", default=64)
        right = config.integer("right_max_position_embeddings", default=8)
        layer.tensor(
            "self_attn.distance_embedding.weight",
            Role.POSITION_EMBEDDING,
            whole(left + right + 1),
            whole(stack.head_dim),
        )
    _list_convolution(layer.at(f"{layer.prefix}conv_module."), config, width)
    layer.norm("final_layer_norm", width, bias=True)
    place.norm("encoder.layer_norm", width, bias=True)
    _list_feed_forward(place, "intermediate_ffn", stack)
    if config.flag("add_adapter", default=True):
        _list_adapter(place, config, stack)
    place.norm("inner_layer_norm", width, bias=True)


def _list_feed_forward(place: Place, name: str, stack: Stack) -> None:
    plain_mlp(
        place,
        f"{name}.intermediate_dense",
        f"{name}.output_dense",
        width=stack.width,
        inner=stack.inner,
        bias=True,
    )


def _list_conformer_attention(place: Place, stack: Stack) -> None:
    attention(
        place,
        "self_attn",
        width=stack.width,
        heads=stack.heads,
        kv=stack.heads,
        head_dim=stack.head_dim,
        bias=True,
        o_bias=True,
        names=CONFORMER_NAMES,
    )
    place.norm("self_attn_layer_norm", stack.width, bias=True)


def _list_convolution(place: Place, config: Config, width: int) -> None:
    kernel = config.integer("conv_depthwise_kernel_size", default=31, maximum=65536)
    place.norm("layer_norm", width, bias=True)
    place.tensor("pointwise_conv1.weight", Role.OTHER, whole(2 * width), whole(width), whole(1))
    place.tensor("depthwise_conv.weight", Role.OTHER, whole(width), whole(1), whole(kernel))
    place.norm("depthwise_layer_norm", width, bias=True)
    place.tensor("pointwise_conv2.weight", Role.OTHER, whole(width), whole(width), whole(1))


def _list_adapter(place: Place, config: Config, stack: Stack) -> None:
    width = stack.width
    kernel = config.integer("adaptor_kernel_size", default=8, maximum=65536)
    layer = place.at(
        f"{place.prefix}adapter.layers.{{block}}.", copies=config.num_layers("num_adapter_layers", default=1)
    )
    for name in ("residual_conv", "self_attn_conv"):
        layer.tensor(f"{name}.weight", Role.OTHER, whole(2 * width), whole(width), whole(kernel))
        layer.tensor(f"{name}.bias", Role.OTHER, whole(2 * width))
    layer.norm("residual_layer_norm", width, bias=True)
    _list_conformer_attention(layer, stack)
    layer.norm("ffn_layer_norm", width, bias=True)
    _list_feed_forward(layer, "ffn", stack)


def _list_units(place: Place, config: Config, width: int) -> None:
    """Text to speech units: an encoder like the text encoder, and a decoder of attention and convolutions."""
    encoder = stack_from_config(config, "t2u_encoder", width_keys=WIDTH)
    block = place.at(f"{place.prefix}encoder.layers.{{block}}.", copies=encoder.count)
    list_layers(block, encoder, NAMES, cross=False)
    place.norm("encoder.layer_norm", width, bias=True)

    decoder = stack_from_config(config, "t2u_decoder", width_keys=WIDTH)
    top = place.at(f"{place.prefix}decoder.")
    for name in ("pos_emb_alpha_char", "pos_emb_alpha"):
        top.tensor(name, Role.OTHER, whole(1))
    top.embedding("embed_tokens", config.integer("t2u_vocab_size", default=10082), width)
    top.embedding("embed_char", config.integer("char_vocab_size", default=10943), width)
    predictor(
        top,
        "duration_predictor",
        embed=config.integer("t2u_variance_predictor_embed_dim", default=1024),
        inner=config.integer("t2u_variance_predictor_hidden_dim", default=256),
        kernel=config.integer("t2u_variance_predictor_kernel_size", default=3, maximum=65536),
    )
    layer = top.at(f"{top.prefix}layers.{{block}}.", copies=decoder.count)
    list_attention(layer, "self_attn", decoder)
    for name in ("conv1", "conv2"):
        layer.tensor(f"{name}.weight", Role.OTHER, whole(width), whole(width), whole(UNIT_KERNEL))
        layer.tensor(f"{name}.bias", Role.OTHER, whole(width))
    layer.norm("conv_layer_norm", width, bias=True)
    top.norm("layer_norm", width, bias=True)
