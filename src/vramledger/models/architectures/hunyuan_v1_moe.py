"""Hunyuan-A13B (transformers models/hunyuan_v1_moe): one shared MLP beside the routed experts."""

from __future__ import annotations

from vramledger.formats.dtypes import DType
from vramledger.models.config import Config
from vramledger.models.decoder import full_attention, heads_from_config
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model
from vramledger.models.moe import MoeNames, attends, moe_decoder
from vramledger.models.rope import rope_from_config

NAMES = MoeNames(router="gate.wg", shared="shared_mlp", router_dtype=DType.F32)


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config)
    count = config.num_layers()
    positions = config.integer("max_position_embeddings", default=2048)
    bias = config.flag("attention_bias", default=False)
    inner = _same(config, "moe_intermediate_size") or config.integer("intermediate_size")
    total = _same(config, "num_experts") or 1
    active = _same(config, "moe_topk") or 1
    if active > total:
        raise config.fail("moe_topk", f"{active} is more than the {total} experts")
    shared = _same(config, "num_shared_expert") or 1

    return moe_decoder(
        config,
        model_id,
        default_class="HunYuanMoEV1ForCausalLM",
        width=heads.width,
        mixers=(full_attention(heads),) * count,
        moe=MixtureOfExperts(
            num_experts=total,
            top_k=active,
            intermediate=inner,
            shared_intermediate=config.integer("intermediate_size") * shared,
        ),
        attend=attends(
            heads, bias=bias, o_bias=bias, qk_norm=True, norm_names=("query_layernorm", "key_layernorm")
        ),
        names=NAMES,
        positions=positions,
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def _same(config: Config, key: str) -> int | None:
    """A number that the file may repeat for every layer; None where absent. Raises ConfigError where the
    layers differ, which no published model does."""
    if not isinstance(config.raw(key), list):
        return config.optional_int(key)
    values = set(config.integers(key))
    if len(values) != 1:
        raise config.fail(key, "differs from layer to layer, which has no description here")
    return values.pop()
