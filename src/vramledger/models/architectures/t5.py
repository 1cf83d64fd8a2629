"""T5, Flan-T5 and UMT5 (transformers models/t5/modeling_t5.py, models/umt5/modeling_umt5.py).

T5 keeps its relative position bias in the first layer of each side, UMT5 in every layer. Transformers 5 ties the
head in every case; checkpoints whose config says tie_word_embeddings is false hold a head of their own, and that
is what is described here.
"""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, gated_mlp, plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.encdec import decoder_layers, encoder_layers
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role, q_heads, whole

NAMES = ("q", "k", "v", "o")


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("d_model", default=512)
    heads = config.integer("num_heads", default=8)
    head_dim = config.integer("d_kv", default=64)
    encoders = config.num_layers("num_layers", default=6)
    decoders = config.num_layers("num_decoder_layers", default=encoders)
    rows = config.integer("vocab_size", default=32128)
    positions = config.integer("n_positions", default=512)
    if "n_positions" not in config:
        config.assume("n_positions 512 is what T5 was trained with; relative positions set no limit")
    gated = config.text("feed_forward_proj", default="relu").startswith("gated-")
    channel = DenseMlp(intermediate=config.integer("d_ff", default=2048), gated=gated)
    tied = config.flag("tie_word_embeddings", default=True)

    root = Place()
    root.embedding("shared", rows, width)
    for side, count, component in (
        ("encoder", encoders, Component.ENCODER),
        ("decoder", decoders, Component.DECODER),
    ):
        top = root.at(f"{side}.", component=component)
        layer = top.at(f"{side}.block.{{layer}}.layer.", range(count))
        mixers = ("SelfAttention", "EncDecAttention") if side == "decoder" else ("SelfAttention",)
        for place, name in enumerate(mixers):
            attention(
                layer,
                f"{place}.{name}",
                width=width,
                heads=heads,
                kv=heads,
                head_dim=head_dim,
                names=NAMES,
            )
            layer.norm(f"{place}.layer_norm", width)
        biased = layer if config.text("model_type", default="t5") == "umt5" else layer.at(layer.prefix, (0,))
        _list_bias(biased, config, heads)
        _list_mlp(layer, len(mixers), width, channel)
        top.norm("final_layer_norm", width)
    if not tied:
        root.lm_head("lm_head", rows, width)
        config.assume("tie_word_embeddings is false: the checkpoint's own lm_head is counted")

    return assemble(
        config,
        model_id,
        root,
        default_class="T5ForConditionalGeneration",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=decoder_layers(
            decoders, heads=heads, head_dim=head_dim, channel=channel, max_encoder_tokens=positions
        ),
        encoder_layers=encoder_layers(encoders, heads=heads, head_dim=head_dim, channel=channel),
    )


def _list_bias(place: Place, config: Config, heads: int) -> None:
    buckets = config.integer("relative_attention_num_buckets", default=32)
    place.tensor(
        "0.SelfAttention.relative_attention_bias.weight",
        Role.POSITION_EMBEDDING,
        whole(buckets),
        q_heads(heads, 1),
    )


def _list_mlp(layer: Place, index: int, width: int, channel: DenseMlp) -> None:
    name = f"{index}.DenseReluDense"
    if channel.gated:
        gated_mlp(layer, name, width=width, inner=channel.intermediate, names=("wi_0", "wi_1", "wo"))
    else:
        plain_mlp(layer, f"{name}.wi", f"{name}.wo", width=width, inner=channel.intermediate)
    layer.norm(f"{index}.layer_norm", width)
