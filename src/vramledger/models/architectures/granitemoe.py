"""Granite 3 mixtures (transformers models/granitemoe; fused experts under the checkpoint's own names)."""

from __future__ import annotations

from vramledger.models.blocks import Place, fused_experts, router
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.model import Model
from vramledger.models.moe import attends, mixture_from_config, moe_decoder
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=2048)
    bias = config.flag("attention_bias", default=False)
    moe = mixture_from_config(config, count=("num_local_experts",), inner=("intermediate_size",))

    def block(place: Place) -> None:
        router(place, "block_sparse_moe.router.layer", width=heads.width, count=moe.num_experts)
        fused_experts(
            place,
            "block_sparse_moe",
            width=heads.width,
            inner=moe.intermediate,
            count=moe.num_experts,
            names=("input_linear.weight", "output_linear.weight"),
        )

    return moe_decoder(
        config,
        model_id,
        default_class="GraniteMoeForCausalLM",
        width=heads.width,
        mixers=(full_attention(heads),) * count,
        moe=moe,
        attend=attends(heads, bias=bias, o_bias=bias),
        experts=block,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
