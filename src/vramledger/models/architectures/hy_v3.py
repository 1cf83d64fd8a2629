"""Hunyuan 3 (transformers models/hy_v3; checkpoint names as its entry in conversion_mapping.py reverses)."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.model import Model
from vramledger.models.moe import Draft, MoeNames, attends, mixture_from_config, moe_decoder, sparse_layers
from vramledger.models.rope import rope_from_config

NAMES = MoeNames(router="router.gate", bias="expert_bias", shared="shared_mlp")


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=131072)
    bias = config.flag("attention_bias", default=False)
    mixer = full_attention(heads)

    return moe_decoder(
        config,
        model_id,
        default_class="HYV3ForCausalLM",
        width=heads.width,
        mixers=(mixer,) * count,
        moe=mixture_from_config(
            config, count=("num_experts",), shared="num_shared_experts", default_shared=1
        ),
        attend=attends(heads, bias=bias, o_bias=bias, qk_norm=True),
        names=NAMES,
        sparse=sparse_layers(config, count, default_dense=1),
        dense_inner=config.integer("intermediate_size"),
        dense_bias=config.flag("mlp_bias", default=False),
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
        draft=Draft(
            count=config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64),
            mixer=mixer,
            norm="final_layernorm",
        ),
    )
