"""Qwen3 mixtures (transformers models/qwen3_moe): per-head query and key norms, no shared expert."""

from __future__ import annotations

from collections.abc import Callable

from vramledger.models.architectures.qwen2_moe import sparse_by_step
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model
from vramledger.models.moe import attends, mixture_from_config, moe_decoder
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    return qwen3_mixture(config, model_id)


def qwen3_mixture(
    config: Config, model_id: str, experts: Callable[[Place, MixtureOfExperts, int], None] | None = None
) -> Model:
    """Qwen3's decoder; `experts` lists a mixture of some width that is not stored expert by expert."""
    heads = heads_from_config(config, default_kv=4)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=32768)
    bias = config.flag("attention_bias", default=False)
    enabled = config.flag("use_sliding_window", default=False)
    windows = config if enabled else config.replacing(sliding_window=None)
    moe = mixture_from_config(config, count=("num_experts", "num_local_experts"))

    return moe_decoder(
        config,
        model_id,
        default_class="Qwen3MoeForCausalLM",
        width=heads.width,
        mixers=windowed_mixers(windows, heads, count, lambda index: True),
        moe=moe,
        experts=None if experts is None else lambda place: experts(place, moe, heads.width),
        attend=attends(heads, bias=bias, o_bias=bias, qk_norm=True),
        sparse=sparse_by_step(config, count),
        dense_inner=config.integer("intermediate_size"),
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )
