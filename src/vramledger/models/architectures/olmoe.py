"""OLMoE (transformers models/olmoe): query and key norms as wide as all heads together."""

from __future__ import annotations

from vramledger.models.blocks import Place, attention
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.model import Model
from vramledger.models.moe import mixture_from_config, moe_decoder
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=4096)
    bias = config.flag("attention_bias", default=False)

    def attend(place: Place) -> None:
        attention(
            place,
            "self_attn",
            width=heads.width,
            heads=heads.heads,
            kv=heads.kv,
            head_dim=heads.head_dim,
            bias=bias,
            o_bias=bias,
        )
        place.norm("self_attn.q_norm", heads.heads * heads.head_dim)
        place.norm("self_attn.k_norm", heads.kv * heads.head_dim)

    return moe_decoder(
        config,
        model_id,
        default_class="OlmoeForCausalLM",
        width=heads.width,
        mixers=(full_attention(heads),) * count,
        moe=mixture_from_config(config, count=("num_experts",), inner=("intermediate_size",)),
        attend=attend,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
