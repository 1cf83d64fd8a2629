"""Llama 3.2 Vision: Llama with cross-attention layers over a tiled encoder
(transformers models/mllama/modeling_mllama.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, assemble, full_attention, heads_from_config
from vramledger.models.mixers import CrossAttention, DenseMlp, Layer
from vramledger.models.model import Model
from vramledger.models.multimodal import BESIDE, compose, text_config
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, whole
from vramledger.models.towers import projection
from vramledger.models.towers_mllama import mllama_vision

CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)
EXTRA_ROWS = 8
"""Rows of the embedding beyond the vocabulary, for the image token and its padding."""


def describe(config: Config, model_id: str) -> Model:
    root = Place(prefix="vision_model.", component=Component.VISION)
    tower, encoder_tokens, out = mllama_vision(root, config.sub("vision_config"))
    text = _text(text_config(config, as_type="mllama_text_model"), model_id, encoder_tokens)
    projection(
        root.at("", component=Component.PROJECTOR), "multi_modal_projector", text.hidden_size, out, bias=True
    )
    return compose(text, config, model_id, prefixes=BESIDE, extra=root.into, towers=(tower,))


def _text(config: Config, model_id: str, encoder_tokens: int) -> Model:
    config = config.with_defaults(
        "MllamaTextConfig",
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14336,
        max_position_embeddings=131072,
        vocab_size=128256,
    )
    heads = heads_from_config(config)
    width = heads.width
    count = config.num_layers(default=40)
    rows = config.integer("vocab_size")
    inner = config.integer("intermediate_size")
    positions = config.integer("max_position_embeddings")
    tied = config.flag("tie_word_embeddings", default=False)
    cross = set(_cross_layers(config, count))

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows + EXTRA_ROWS, width)
    layer = root.at("model.layers.{layer}.", range(count))
    _attend(layer.at(layer.prefix, [i for i in range(count) if i not in cross]), "self_attn", heads)
    crossing = layer.at(layer.prefix, sorted(cross))
    _attend(crossing, "cross_attn", heads, qk_norm=True)
    for gate in ("cross_attn_attn_gate", "cross_attn_mlp_gate"):
        crossing.tensor(gate, Role.OTHER, whole(1))
    gated_mlp(layer, "mlp", width=width, inner=inner)
    layer.norm("input_layernorm", width)
    layer.norm("post_attention_layernorm", width)
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    crosses = CrossAttention(
        q_heads=heads.heads,
        kv_heads=heads.kv,
        head_dim=heads.head_dim,
        v_head_dim=heads.head_dim,
        max_encoder_tokens=encoder_tokens,
    )
    return assemble(
        config,
        model_id,
        root,
        default_class="MllamaForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(crosses if index in cross else full_attention(heads),),
                channel_mixer=DenseMlp(intermediate=inner, gated=True),
            )
            for index in range(count)
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def _attend(place: Place, name: str, heads: Heads, *, qk_norm: bool = False) -> None:
    attention(
        place,
        name,
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        qk_norm=qk_norm,
    )


def _cross_layers(config: Config, count: int) -> tuple[int, ...]:
    stated = "cross_attention_layers" in config
    layers = config.integers("cross_attention_layers") if stated else CROSS_LAYERS
    if any(index >= count for index in layers):
        raise config.fail("cross_attention_layers", f"names a layer beyond the {count} there are")
    return layers
