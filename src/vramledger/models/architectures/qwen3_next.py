"""Qwen3-Next: gated delta rule with gated attention every fourth layer, experts and an MTP block (transformers
models/qwen3_next/modeling_qwen3_next.py; the MTP block's names are those of vLLM's qwen3_next_mtp.py).

Qwen3.5 has the same layers with other tensors in the delta rule; it uses `build` too.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from vramledger.models.blocks import (
    SHARED,
    Place,
    attention,
    fused_experts,
    gated_mlp,
    layers_of,
    routed_experts,
    router,
)
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import Heads, assemble, full_attention, heads_from_config
from vramledger.models.hybrid import FULL, LINEAR, interval_types
from vramledger.models.mixers import ChannelMixer, DenseMlp, Layer, MixtureOfExperts
from vramledger.models.model import Model, Rope
from vramledger.models.recurrent import gated_delta_from_config, gated_delta_net
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Component, Role, Stage, hidden, whole

MAX_DRAFT_LAYERS = 64


class Style(Struct, frozen=True, kw_only=True):
    """What differs between the generations: how the delta rule and the experts are stored, names, MTP."""

    default_class: str
    fused_delta: bool
    fused_experts: bool
    sparse_layers: tuple[int, ...]
    draft_layers: int
    prefix: str = "model."


def describe(config: Config, model_id: str) -> Model:
    count = config.num_layers()
    draft = config.integer("num_nextn_predict_layers", default=1, minimum=0, maximum=MAX_DRAFT_LAYERS)
    if "num_nextn_predict_layers" not in config:
        config.assume(
            "one MTP block is listed, as the family has; the config does not say, and Coder-Next has none"
        )
    style = Style(
        default_class="Qwen3NextForCausalLM",
        fused_delta=True,
        fused_experts=False,
        sparse_layers=_sparse_layers(config, count),
        draft_layers=draft,
    )
    return build(config, model_id, style, tied=config.flag("tie_word_embeddings", default=False))


def _sparse_layers(config: Config, count: int) -> tuple[int, ...]:
    """Every decoder_sparse_step-th layer that mlp_only_layers does not name (Qwen3NextDecoderLayer)."""
    if not config.integer("num_experts", default=512, minimum=0):
        return ()
    step = config.integer("decoder_sparse_step", default=1, maximum=MAX_LAYERS)
    dense = set(config.integers("mlp_only_layers", maximum=MAX_LAYERS))
    return tuple(index for index in range(count) if index not in dense and (index + 1) % step == 0)


def build(config: Config, model_id: str, style: Style, *, tied: bool) -> Model:
    """The text model; `tied` is told since a wrapper's config decides it."""
    heads = heads_from_config(config, default_heads=16, default_kv=2, default_head_dim=256)
    width = heads.width
    count = config.num_layers()
    rows = config.integer("vocab_size")
    positions = config.integer("max_position_embeddings", default=32768)
    types = interval_types(config, count)
    delta = gated_delta_from_config(config)
    mixture = _mixture(config) if style.sparse_layers else None
    dense = (
        DenseMlp(intermediate=config.integer("intermediate_size"), gated=True)
        if (len(style.sparse_layers) < count)
        else None
    )

    root = Place(prefix=style.prefix)
    root.embedding("embed_tokens", rows, width)
    layer = root.at(f"{style.prefix}layers.{{layer}}.", range(count))
    gated_delta_net(
        layer.at(layer.prefix, layers_of(types, LINEAR)),
        "linear_attn",
        delta,
        width=width,
        fused=style.fused_delta,
    )
    _list_attention(layer.at(layer.prefix, layers_of(types, FULL)), config, heads)
    if dense:
        flat = layer.at(layer.prefix, (i for i in range(count) if i not in style.sparse_layers))
        gated_mlp(flat, "mlp", width=width, inner=dense.intermediate)
    if mixture:
        sparse = layer.at(layer.prefix, style.sparse_layers)
        _list_experts(sparse, mixture, width, fused=style.fused_experts)
    layer.norm("input_layernorm", width)
    layer.norm("post_attention_layernorm", width)
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)
    channels: tuple[ChannelMixer | None, ...] = tuple(
        mixture if index in style.sparse_layers else dense for index in range(count)
    )
    if style.draft_layers:
        _list_draft(root, config, heads, style, mixture or dense)

    return assemble(
        config,
        model_id,
        root,
        default_class=style.default_class,
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(delta if kind == LINEAR else full_attention(heads),),
                channel_mixer=channels[index],
            )
            for index, kind in enumerate(types)
        ),
        rope=(_rope(config, heads.head_dim, positions),),
        draft_layers=tuple(
            Layer(index=count + step, token_mixers=(full_attention(heads),), channel_mixer=mixture or dense)
            for step in range(style.draft_layers)
        ),
    )


def _mixture(config: Config) -> MixtureOfExperts:
    experts = config.integer("num_experts")
    return MixtureOfExperts(
        num_experts=experts,
        top_k=config.integer("num_experts_per_tok", maximum=experts),
        intermediate=config.integer("moe_intermediate_size", default=512),
        shared_intermediate=config.integer("shared_expert_intermediate_size", default=512, minimum=0),
    )


def _list_attention(place: Place, config: Config, heads: Heads) -> None:
    bias = config.flag("attention_bias", default=False)
    attention(
        place,
        "self_attn",
        width=heads.width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        bias=bias,
        o_bias=bias,
        qk_norm=True,
        output_gate=config.flag("attn_output_gate", default=True),
    )


def _list_experts(place: Place, mixture: MixtureOfExperts, width: int, *, fused: bool) -> None:
    router(place, "mlp.gate", width=width, count=mixture.num_experts)
    if fused:
        fused_experts(
            place, "mlp.experts", width=width, inner=mixture.intermediate, count=mixture.num_experts
        )
    else:
        routed_experts(
            place, "mlp.experts", width=width, inner=mixture.intermediate, count=mixture.num_experts
        )
    if mixture.shared_intermediate:
        gated_mlp(place, "mlp.shared_expert", width=width, inner=mixture.shared_intermediate, roles=SHARED)
        place.linear("mlp.shared_expert_gate", Role.ROUTER, whole(1), hidden(width), quantizable=False)


def _list_draft(
    root: Place, config: Config, heads: Heads, style: Style, channel: MixtureOfExperts | DenseMlp | None
) -> None:
    """A projection of (embedding, hidden) and attention layers; embedding and head are the main model's."""
    width = heads.width
    top = root.at("mtp.", (), copies=1, stage=Stage.LAST, component=Component.DRAFT)
    top.linear("fc", Role.OTHER, hidden(width), hidden(2 * width))
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        top.norm(norm, width)
    layer = top.at("mtp.layers.{block}.", copies=style.draft_layers)
    _list_attention(layer, config, heads)
    if isinstance(channel, MixtureOfExperts):
        _list_experts(layer, channel, width, fused=style.fused_experts)
    elif channel:
        gated_mlp(layer, "mlp", width=width, inner=channel.intermediate)
    layer.norm("input_layernorm", width)
    layer.norm("post_attention_layernorm", width)


def _rope(config: Config, head_dim: int, positions: int) -> Rope:
    """Only a quarter of a head rotates unless the config says otherwise; sections make it multimodal."""
    parameters = config.optional_sub("rope_parameters") or config.optional_sub("rope_scaling")
    stated = "partial_rotary_factor" in config or (
        parameters is not None and "partial_rotary_factor" in parameters
    )
    rope = rope_from_config(
        config, head_dim, max_positions=positions, rotary=None if stated else max(1, head_dim // 4)
    )
    sections = parameters is not None and bool(parameters.items("mrope_section"))
    return replace(rope, scaling="mrope") if sections and rope.scaling == "default" else rope
