"""gpt-oss (transformers models/gpt_oss): fused experts with biases, a sink for each head, every other layer windowed.

The published experts are MXFP4 blocks along the input, so they are listed as [experts, out, in].
"""

from __future__ import annotations

from vramledger.models.blocks import Place, fused_experts
from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.model import Model
from vramledger.models.moe import attends, mixture_from_config, moe_decoder, published_bf16
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, experts, gate_up, hidden, q_heads, whole


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("GptOssConfig", sliding_window=128)
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=131072)
    bias = config.flag("attention_bias", default=True)
    moe = mixture_from_config(
        config, count=("num_local_experts", "num_experts"), inner=("intermediate_size",)
    )
    project = attends(heads, bias=bias, o_bias=bias)

    def attend(place: Place) -> None:
        project(place)
        place.tensor("self_attn.sinks", Role.SINKS, q_heads(heads.heads, 1))

    def block(place: Place) -> None:
        total, inner = moe.num_experts, moe.intermediate
        place.linear(
            "mlp.router", Role.ROUTER, whole(total), hidden(heads.width), bias=True, quantizable=False
        )
        fused_experts(place, "mlp.experts", width=heads.width, inner=inner, count=total)
        place.tensor("mlp.experts.gate_up_proj_bias", Role.EXPERT_GATE_UP, experts(total), gate_up(inner))
        place.tensor("mlp.experts.down_proj_bias", Role.EXPERT_DOWN, experts(total), hidden(heads.width))

    return moe_decoder(
        config,
        model_id,
        default_class="GptOssForCausalLM",
        width=heads.width,
        mixers=windowed_mixers(config, heads, count, lambda index: index % 2 == 0),
        moe=moe,
        attend=attend,
        experts=block,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
        default_dtype=published_bf16(config),
    )
