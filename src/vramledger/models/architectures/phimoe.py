"""Phi-3.5-MoE and Phi-mini-MoE (transformers models/phimoe): Mixtral's layout with biases and layer norms."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.model import Model
from vramledger.models.moe import (
    MIXTRAL_NAMES,
    attends,
    mixture_from_config,
    moe_decoder,
)
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=131072)
    bias = config.flag("attention_bias", default=False)

    return moe_decoder(
        config,
        model_id,
        default_class="PhimoeForCausalLM",
        width=heads.width,
        mixers=windowed_mixers(config, heads, count, lambda index: True),
        moe=mixture_from_config(config, count=("num_local_experts",), inner=("intermediate_size",)),
        attend=attends(heads, bias=bias, o_bias=bias),
        names=MIXTRAL_NAMES,
        norm_bias=True,
        head_bias=config.flag("lm_head_bias", default=False),
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
