"""MiMo-V2-Flash (transformers models/mimo_v2_flash; draft layers as in the published checkpoint): windowed layers
with other KV head counts than the full ones and a sink for each head, values narrower than keys."""

from __future__ import annotations

from msgspec import Struct

from vramledger.models.blocks import Place, attention, gated_mlp
from vramledger.models.config import Config
from vramledger.models.mixers import DenseMlp, FullAttention, Layer, SlidingWindowAttention
from vramledger.models.model import Model
from vramledger.models.moe import (
    DEEPSEEK_NAMES,
    draft_input,
    kinds,
    mixture_from_config,
    moe_decoder,
    numbers,
    sparse_layers,
    with_draft,
)
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, Stage, q_heads

DRAFTS = 3
"""Draft layers of the published checkpoint (model.mtp.layers.0 to 2); its config does not count them."""


class _Side(Struct, frozen=True, kw_only=True):
    """The attention of one kind of layer."""

    mixer: FullAttention
    bias: bool
    sinks: bool
    width: int

    def tensors(self, place: Place) -> None:
        attention(
            place,
            "self_attn",
            width=self.width,
            heads=self.mixer.q_heads,
            kv=self.mixer.kv_heads,
            head_dim=self.mixer.head_dim,
            v_head_dim=self.mixer.v_head_dim,
            bias=self.bias,
        )
        if self.sinks:
            place.tensor("self_attn.attention_sink_bias", Role.SINKS, q_heads(self.mixer.q_heads, 1))


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size")
    count = config.num_layers()
    inner = config.integer("intermediate_size")
    positions = config.integer("max_position_embeddings", default=131072)
    full, local = _full(config, width), _local(config, width)
    windowed = _windowed(config, count)

    def attend(place: Place) -> None:
        full.tensors(place.at(place.prefix, (index for index in place.layers if index not in windowed)))
        local.tensors(place.at(place.prefix, (index for index in place.layers if index in windowed)))

    rope = rope_from_config(config, full.mixer.head_dim, max_positions=positions)
    local_rope = rope_from_config(config, local.mixer.head_dim, max_positions=positions)
    model = moe_decoder(
        config,
        model_id,
        default_class="MiMoV2FlashForCausalLM",
        width=width,
        mixers=[local.mixer if index in windowed else full.mixer for index in range(count)],
        moe=mixture_from_config(config, shared="n_shared_experts"),
        attend=attend,
        names=DEEPSEEK_NAMES,
        sparse=sparse_layers(config, count, default_dense=1),
        dense_inner=inner,
        positions=positions,
        # Two bases (rope_theta, swa_rope_theta) make two tables even where their shapes agree.
        rope=(rope, local_rope),
    )

    drafts = config.integer("num_nextn_predict_layers", default=DRAFTS, minimum=0, maximum=64)
    if "num_nextn_predict_layers" not in config:
        config.assume(f"{DRAFTS} draft layers taken from the published checkpoint; config.json counts none")
    if not drafts:
        return model
    place = Place(
        prefix="model.mtp.layers.{block}.", copies=drafts, stage=Stage.LAST, component=Component.DRAFT
    )
    draft_input(place, width=width, norm="final_layernorm")
    local.tensors(place)
    gated_mlp(place, "mlp", width=width, inner=inner)
    place.norm("input_layernorm", width)
    place.norm("pre_mlp_layernorm", width)
    dense = DenseMlp(intermediate=inner, gated=True)
    return with_draft(
        model,
        place,
        tuple(
            Layer(index=count + step, token_mixers=(local.mixer,), channel_mixer=dense)
            for step in range(drafts)
        ),
    )


def _full(config: Config, width: int) -> _Side:
    heads, kv = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    _divides(config, heads, kv, "num_attention_heads")
    dim = config.integer("head_dim", default=192)
    return _Side(
        mixer=FullAttention(
            q_heads=heads, kv_heads=kv, head_dim=dim, v_head_dim=config.integer("v_head_dim", default=128)
        ),
        bias=config.flag("attention_bias", default=False),
        sinks=config.flag("add_full_attention_sink_bias", default=False),
        width=width,
    )


def _local(config: Config, width: int) -> _Side:
    """The class doubles the KV heads in windowed layers where the file does not say. The window is the
    file's `sliding_window_size`, as engines take it; Transformers adds the current token to it."""
    heads = config.integer("swa_num_attention_heads", "num_attention_heads")
    kv = config.integer("swa_num_key_value_heads", default=2 * config.integer("num_key_value_heads"))
    _divides(config, heads, kv, "swa_num_attention_heads")
    return _Side(
        mixer=SlidingWindowAttention(
            q_heads=heads,
            kv_heads=kv,
            head_dim=config.integer("swa_head_dim", "head_dim", default=192),
            v_head_dim=config.integer("swa_v_head_dim", "v_head_dim", default=128),
            window=config.integer("sliding_window_size", "sliding_window", default=129),
        ),
        bias=config.flag("attention_bias", default=False),
        sinks=config.flag("add_swa_attention_sink_bias", default=True),
        width=width,
    )


def _divides(config: Config, heads: int, kv: int, key: str) -> None:
    if heads % kv:
        raise config.fail(key, f"{heads} does not divide by {kv} KV heads")


def _windowed(config: Config, count: int) -> frozenset[int]:
    """`hybrid_layer_pattern` (1: windowed), else `layer_types`, else all but the first and every sixth."""
    pattern = numbers(config, "hybrid_layer_pattern", count)
    if pattern:
        return frozenset(index for index, flag in enumerate(pattern) if flag)
    types = kinds(config, "layer_types", count, ("full_attention", "sliding_attention"))
    if types:
        return frozenset(index for index, kind in enumerate(types) if kind == "sliding_attention")
    return frozenset(index for index in range(count) if index and (index + 1) % 6)
