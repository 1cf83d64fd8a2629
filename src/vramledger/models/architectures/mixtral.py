"""Mixtral (transformers models/mixtral): experts w1, w2, w3 under `block_sparse_moe` in every layer."""

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

    return moe_decoder(
        config,
        model_id,
        default_class="MixtralForCausalLM",
        width=heads.width,
        mixers=windowed_mixers(config, heads, count, lambda index: True),
        moe=mixture_from_config(config, count=("num_local_experts",), inner=("intermediate_size",)),
        attend=attends(heads),
        names=MIXTRAL_NAMES,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
