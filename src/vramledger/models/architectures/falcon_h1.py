"""Falcon-H1: attention and Mamba-2 side by side in every layer (transformers
models/falcon_h1/modeling_falcon_h1.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, gated_mlp
from vramledger.models.config import Config
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
    positions = config.integer("max_position_embeddings", default=8192)
    tied = config.flag("tie_word_embeddings", default=False)
    bias = config.flag("attention_bias", default=False)
    recurrent = mamba2_from_config(config, heads.width, inner=config.optional_int("mamba_d_ssm", minimum=1))

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, heads.width)
    layer = root.at("model.layers.{layer}.", range(count))
    mamba2(
        layer,
        "mamba",
        recurrent,
        width=heads.width,
        bias=config.flag("mamba_proj_bias", default=False),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        out_bias=config.flag("projectors_bias", default=False),
        gated_norm=config.flag("mamba_rms_norm", default=False),
    )
    attention(
        layer,
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

    return assemble(
        config,
        model_id,
        root,
        default_class="FalconH1ForCausalLM",
        width=heads.width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(full_attention(heads), recurrent),
                channel_mixer=DenseMlp(intermediate=inner, gated=True),
            )
            for index in range(count)
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
