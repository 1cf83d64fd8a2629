"""GLM-4.5 to 4.7 (transformers models/glm4_moe; draft block as DeepSeek-V3's, with its own embedding and head).

GLM-4.6 stores its draft block without those two copies; its config is the same, so they are listed.
"""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.model import Model
from vramledger.models.moe import (
    DEEPSEEK_NAMES,
    Draft,
    attends,
    mixture_from_config,
    moe_decoder,
    sparse_layers,
)
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=131072)
    bias = config.flag("attention_bias", default=False)
    norms = config.flag("use_qk_norm", default=False)
    mixer = full_attention(heads)
    ropes = config.optional_sub("rope_parameters")
    partial = "partial_rotary_factor" in config or (ropes is not None and "partial_rotary_factor" in ropes)
    rotary = None if partial else heads.head_dim // 2

    return moe_decoder(
        config,
        model_id,
        default_class="Glm4MoeForCausalLM",
        width=heads.width,
        mixers=(mixer,) * count,
        moe=mixture_from_config(config, shared="n_shared_experts", default_shared=1),
        attend=attends(heads, bias=bias, qk_norm=norms),
        names=DEEPSEEK_NAMES,
        sparse=sparse_layers(config, count, default_dense=1),
        dense_inner=config.integer("intermediate_size"),
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions, rotary=rotary),),
        draft=Draft(
            count=config.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64),
            mixer=mixer,
            copies=True,
        ),
    )
