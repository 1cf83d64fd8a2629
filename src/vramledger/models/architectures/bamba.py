"""Bamba: Mamba-2 layers with a few attention layers between (transformers models/bamba/modeling_bamba.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, gated_mlp
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import assemble, full_attention, heads_from_config
from vramledger.models.mixers import DenseMlp, Layer
from vramledger.models.model import Model
from vramledger.models.recurrent import mamba2, mamba2_from_config
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    rows = config.integer("vocab_size", default=128000)
    inner = config.integer("intermediate_size", default=14336)
    positions = config.integer("max_position_embeddings", default=262144)
    tied = config.flag("tie_word_embeddings", default=False)
    bias = config.flag("attention_bias", default=False)
    attended = set(config.integers("attn_layer_indices", maximum=MAX_LAYERS))
    if attended and max(attended) >= count:
        raise config.fail("attn_layer_indices", f"names layer {max(attended)} of {count}")
    recurrent = mamba2_from_config(config, heads.width)

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, heads.width)
    layer = root.at("model.layers.{layer}.", range(count))
    mamba2(
        layer.at(layer.prefix, (index for index in range(count) if index not in attended)),
        "mamba",
        recurrent,
        width=heads.width,
        bias=config.flag("mamba_proj_bias", default=False),
        conv_bias=config.flag("mamba_conv_bias", default=True),
    )
    attention(
        layer.at(layer.prefix, sorted(attended)),
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=bias,
        o_bias=bias,
    )
    gated_mlp(
        layer, "feed_forward", width=heads.width, inner=inner, bias=config.flag("mlp_bias", default=False)
    )
    layer.norm("input_layernorm", heads.width)
    layer.norm("pre_ff_layernorm", heads.width)
    root.final_norm("final_layernorm", heads.width)
    if not tied:
        root.at("").lm_head("lm_head", rows, heads.width)

    rotary = config.integer("attn_rotary_emb", default=max(1, heads.head_dim // 2))
    return assemble(
        config,
        model_id,
        root,
        default_class="BambaForCausalLM",
        width=heads.width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(full_attention(heads) if index in attended else recurrent,),
                channel_mixer=DenseMlp(intermediate=inner, gated=True),
            )
            for index in range(count)
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions, rotary=rotary),)
        if attended
        else (),
    )
