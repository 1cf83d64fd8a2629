"""MiniMax-M2 (transformers models/minimax_m2): Mixtral's experts with sigmoid routing, norms over all heads.

The config counts MTP modules, but the published checkpoints hold none.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.model import Model
from vramledger.models.moe import MIXTRAL_NAMES, attends, mixture_from_config, moe_decoder, published_bf16
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import kv_heads, q_heads

NAMES = replace(MIXTRAL_NAMES, bias="e_score_correction_bias")


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=196608)
    rotary = config.optional_int("rotary_dim", minimum=1, maximum=heads.head_dim)
    norms = config.flag("use_qk_norm", default=True)

    def attend(place: Place) -> None:
        attends(heads)(place)
        if norms:
            place.norm("self_attn.q_norm", q_heads(heads.heads, heads.head_dim))
            place.norm("self_attn.k_norm", kv_heads(heads.kv, heads.head_dim))

    return moe_decoder(
        config,
        model_id,
        default_class="MiniMaxM2ForCausalLM",
        width=heads.width,
        mixers=(full_attention(heads),) * count,
        moe=mixture_from_config(config, count=("num_local_experts",), inner=("intermediate_size",)),
        attend=attend,
        names=NAMES,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions, rotary=rotary),),
        default_dtype=published_bf16(config),
    )
