"""dots.llm1 (transformers models/dots1): DeepSeek-V3's experts over grouped-query attention."""

from __future__ import annotations

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.model import Model
from vramledger.models.moe import (
    DEEPSEEK_NAMES,
    attends,
    mixture_from_config,
    moe_decoder,
    sparse_layers,
)
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=2048)
    bias = config.flag("attention_bias", default=False)
    limit = config.integer("max_window_layers", default=62, minimum=0)

    return moe_decoder(
        config,
        model_id,
        default_class="Dots1ForCausalLM",
        width=heads.width,
        mixers=windowed_mixers(config, heads, count, lambda index: index >= limit),
        moe=mixture_from_config(config, shared="n_shared_experts"),
        attend=attends(heads, bias=bias, o_bias=bias, qk_norm=True),
        names=DEEPSEEK_NAMES,
        sparse=sparse_layers(config, count),
        dense_inner=config.integer("intermediate_size"),
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
