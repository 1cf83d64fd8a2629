"""LFM2 with routed experts after the first dense layers (transformers models/lfm2_moe/modeling_lfm2_moe.py)."""

from __future__ import annotations

from vramledger.models.architectures.lfm2 import MLP_NAMES, finish, list_mixers
from vramledger.models.blocks import Place, gated_mlp, routed_experts, router
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import heads_from_config
from vramledger.models.mixers import DenseMlp, MixtureOfExperts
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    count = config.num_layers()
    inner = config.integer("intermediate_size", default=7168)
    dense = min(count, config.integer("num_dense_layers", default=2, minimum=0, maximum=MAX_LAYERS))
    experts = config.integer("num_experts", default=32)
    mixture = MixtureOfExperts(
        num_experts=experts,
        top_k=config.integer("num_experts_per_tok", default=4, maximum=experts),
        intermediate=config.integer("moe_intermediate_size", default=1792),
    )

    root = Place(prefix="model.")
    layer = list_mixers(root, config, heads, count)
    first = layer.at(layer.prefix, range(dense))
    gated_mlp(first, "feed_forward", width=heads.width, inner=inner, names=MLP_NAMES)
    sparse = layer.at(layer.prefix, range(dense, count))
    router(
        sparse,
        "feed_forward.gate",
        width=heads.width,
        count=experts,
        correction_bias="feed_forward.expert_bias" if config.flag("use_expert_bias", default=True) else "",
    )
    routed_experts(
        sparse,
        "feed_forward.experts",
        width=heads.width,
        inner=mixture.intermediate,
        count=experts,
        names=MLP_NAMES,
    )
    mlp = DenseMlp(intermediate=inner, gated=True)
    return finish(
        config,
        model_id,
        root,
        heads,
        channels=(mlp,) * dense + (mixture,) * (count - dense),
        default_class="Lfm2MoeForCausalLM",
    )
