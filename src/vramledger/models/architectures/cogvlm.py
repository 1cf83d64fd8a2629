"""CogVLM2-Video: Llama with fused projections behind EVA2-CLIP (modeling_cogvlm.py of cogvlm2-llama3-caption).

Unlike CogVLM2 for images it has no second set of weights for vision tokens: only the language experts are in
the checkpoint, whose 23.3 GiB are this description's total.
"""

from __future__ import annotations

from vramledger.models.blocks import Place, fused_attention, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble, full_attention, heads_from_config, uniform_layers
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.multimodal import compose
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, hidden, whole
from vramledger.models.towers import (
    BlockNames,
    Vit,
    encoder_block,
    patch_embedding,
    pixels,
    positions,
    projection,
    vit_from_config,
)

POOL = 2
"""Patches a side that the convolution behind the tower joins."""

NAMES = BlockNames(
    attention=("attention.query_key_value", "attention.dense"),
    mlp=("mlp.fc1", "mlp.fc2"),
    norms=("input_layernorm", "post_attention_layernorm"),
)


def describe(config: Config, model_id: str) -> Model:
    text = _text(config, model_id)
    vision = config.sub("vision_config")
    vit = vit_from_config(vision, Vit(width=1792, heads=16, inner=15360, layers=63), heads="num_heads")
    patch = pixels(vision, "patch_size", 14)
    channels = vision.integer("in_channels", default=3, maximum=1024)
    base = "model.vision."
    root = Place(prefix=base, component=Component.VISION)
    patch_embedding(root, "patch_embedding.proj", vit.width, channels, patch, patch)
    root.tensor("patch_embedding.cls_embedding", Role.OTHER, whole(1), hidden(vit.width))
    table = vision.integer("num_positions", default=257)
    positions(root, "patch_embedding.position_embedding.weight", vit.width, table)
    encoder_block(root.at(f"{base}transformer.layers.{{block}}.", copies=vit.layers), vit, NAMES)
    _adapter(root.at(base, component=Component.PROJECTOR), vit.width, config, text.hidden_size)
    return compose(
        text,
        config,
        model_id,
        prefixes={},
        extra=root.into,
        towers=(vit.tower("video", patches_per_token=POOL * POOL),),
    )


def _adapter(place: Place, inp: int, config: Config, width: int) -> None:
    """A 2 x 2 convolution, a square matrix and a gated MLP, between learned begin and end vectors."""
    patch_embedding(place, "conv", width, inp, POOL, POOL)
    projection(place, "linear_proj.linear_proj", width, width)
    place.norm("linear_proj.norm1", width, bias=True)
    gated_mlp(
        place,
        "linear_proj",
        width=width,
        inner=config.integer("intermediate_size"),
        names=("gate_proj", "dense_h_to_4h", "dense_4h_to_h"),
        roles=(Role.PROJECTOR, Role.PROJECTOR, Role.PROJECTOR),
    )
    for name in ("boi", "eoi"):
        place.tensor(name, Role.OTHER, whole(1), whole(1), hidden(width))


def _text(config: Config, model_id: str) -> Model:
    heads = heads_from_config(
        config.replacing(num_key_value_heads=config.optional_int("num_multi_query_heads", minimum=1))
    )
    width = heads.width
    count = config.num_layers()
    rows = config.integer("vocab_size")
    inner = config.integer("intermediate_size")
    max_positions = config.integer("max_position_embeddings", default=2048)
    tied = config.flag("tie_word_embeddings", default=False)
    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    layer = root.at("model.layers.{layer}.", range(count))
    fused_attention(
        layer,
        "self_attn.language_expert_query_key_value",
        "self_attn.language_expert_dense",
        width=width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
    )
    gated_mlp(layer, "mlp.language_mlp", width=width, inner=inner)
    layer.norm("input_layernorm", width)
    layer.norm("post_attention_layernorm", width)
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)
    return assemble(
        config,
        model_id,
        root,
        default_class="CogVLMVideoForCausalLM",
        width=width,
        rows=rows,
        positions=max_positions,
        tied=tied,
        layers=uniform_layers(count, full_attention(heads), DenseMlp(intermediate=inner, gated=True)),
        rope=(rope_from_config(config, heads.head_dim, max_positions=max_positions),),
    )
