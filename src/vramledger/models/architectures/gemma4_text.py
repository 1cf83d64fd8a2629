"""Gemma 4's text model (transformers models/gemma4/modeling_gemma4.py).

Full-attention layers have wider heads (`global_head_dim`) and, with `attention_k_eq_v`, fewer KV heads and no
value projection: values are the raw keys, normed apart, so that keys and values are both kept. The last
`num_kv_shared_layers` read the cache of the last layer of their kind before them.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.models.blocks import Place, fused_experts, gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import assemble
from vramledger.models.gemma import kv_sources, layer_types, per_layer_embeddings, shared_kv_attention
from vramledger.models.mixers import (
    ChannelMixer,
    DenseMlp,
    FullAttention,
    Layer,
    MixtureOfExperts,
    SharedKvAttention,
    SlidingWindowAttention,
    TokenMixer,
)
from vramledger.models.model import Model, Rope
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Role, hidden, whole

NORMS = ("input", "post_attention", "pre_feedforward", "post_feedforward")


class _Kind(Struct, frozen=True, kw_only=True):
    """One kind of attention layer; `window` 0 sees the whole context."""

    kv: int
    head_dim: int
    window: int
    own_values: bool


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size", default=2304)
    count = config.num_layers(default=30)
    heads = config.integer("num_attention_heads", default=8)
    rows = config.integer("vocab_size", default=262144)
    default_positions = 262144 if "unified" in config.text("model_type", default="") else 131072
    max_positions = config.integer("max_position_embeddings", default=default_positions)
    tied = config.flag("tie_word_embeddings", default=True)
    types = layer_types(config, count, pattern=6)
    kinds = _kinds(config, heads)
    sources = kv_sources(config, types, config.integer("num_kv_shared_layers", default=0, minimum=0))

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    bias = config.flag("attention_bias", default=False)
    for name, kind in kinds.items():
        of_kind = [index for index in range(count) if types[index] == name]
        shared_kv_attention(
            root,
            of_kind,
            sources,
            width=width,
            heads=heads,
            kv=kind.kv,
            head_dim=kind.head_dim,
            bias=bias,
            own_values=kind.own_values,
        )
    channels = _channel_mixers(root, config, count, sources, width)
    _per_layer_inputs(root, config, count, width)
    layer = root.at("model.layers.{layer}.", range(count))
    for norm in NORMS:
        layer.norm(f"{norm}_layernorm", width)
    layer.tensor("layer_scalar", Role.OTHER, whole(1), parameter=False)
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    return assemble(
        config,
        model_id,
        root,
        default_class="Gemma4ForCausalLM",
        width=width,
        rows=rows,
        positions=max_positions,
        tied=tied,
        layers=tuple(
            Layer(
                index=index,
                token_mixers=(_mixer(kinds[types[index]], heads, sources[index]),),
                channel_mixer=channels[index],
            )
            for index in range(count)
        ),
        rope=_ropes(config, kinds, max_positions),
    )


def _kinds(config: Config, heads: int) -> dict[str, _Kind]:
    kv = config.integer("num_key_value_heads", default=4)
    same = config.flag("attention_k_eq_v", default=False)
    wide_kv = config.integer("num_global_key_value_heads", default=kv) if same else kv
    for key, value in (("num_key_value_heads", kv), ("num_global_key_value_heads", wide_kv)):
        if heads % value:
            raise config.fail("num_attention_heads", f"{heads} does not divide by {key} {value}")
    unified = "unified" in config.text("model_type", default="")
    window = config.integer("sliding_window", default=1024 if unified else 512)
    return {
        "sliding_attention": _Kind(
            kv=kv, head_dim=config.integer("head_dim", default=256), window=window, own_values=True
        ),
        "full_attention": _Kind(
            kv=wide_kv,
            head_dim=config.integer("global_head_dim", default=512),
            window=0,
            own_values=not same,
        ),
    }


def _mixer(kind: _Kind, heads: int, source: int | None) -> TokenMixer:
    widths = {"q_heads": heads, "kv_heads": kind.kv, "head_dim": kind.head_dim, "v_head_dim": kind.head_dim}
    if source is not None:
        return SharedKvAttention(**widths, source_layer=source)
    if kind.window:
        return SlidingWindowAttention(**widths, window=kind.window)
    return FullAttention(**widths)


def _channel_mixers(
    root: Place, config: Config, count: int, sources: tuple[int | None, ...], width: int
) -> tuple[ChannelMixer, ...]:
    """The dense MLP of every layer, twice as wide where KV is shared and `use_double_wide_mlp`, and the
    experts that run beside it."""
    inner = config.integer("intermediate_size", default=9216)
    double = config.flag("use_double_wide_mlp", default=False)
    widths = tuple(inner * (2 if double and source is not None else 1) for source in sources)
    for size in sorted(set(widths)):
        place = root.at("model.layers.{layer}.", [i for i in range(count) if widths[i] == size])
        gated_mlp(place, "mlp", width=width, inner=size)
    if not config.flag("enable_moe_block", default=False):
        return tuple(DenseMlp(intermediate=size, gated=True) for size in widths)

    experts = config.integer("num_experts", maximum=65536)
    expert_inner = config.integer("moe_intermediate_size", "expert_intermediate_size")
    top_k = config.integer("top_k_experts", maximum=experts)
    layer = root.at("model.layers.{layer}.", range(count))
    layer.tensor("router.scale", Role.ROUTER, hidden(width))
    layer.tensor("router.per_expert_scale", Role.ROUTER, whole(experts))
    layer.linear("router.proj", Role.ROUTER, whole(experts), hidden(width), quantizable=False)
    fused_experts(layer, "experts", width=width, inner=expert_inner, count=experts)
    for norm in (
        "post_feedforward_layernorm_1",
        "post_feedforward_layernorm_2",
        "pre_feedforward_layernorm_2",
    ):
        layer.norm(norm, width)
    return tuple(
        MixtureOfExperts(num_experts=experts, top_k=top_k, intermediate=expert_inner, dense_intermediate=size)
        for size in widths
    )


def _per_layer_inputs(root: Place, config: Config, count: int, width: int) -> None:
    """Per-layer embeddings: one table for all layers, and a gate and projection in each."""
    size = config.integer("hidden_size_per_layer_input", default=256, minimum=0)
    if not size:
        return
    rows = config.integer("vocab_size_per_layer_input", default=262144)
    per_layer_embeddings(root, rows=rows, size=size, count=count, width=width)


def _ropes(config: Config, kinds: dict[str, _Kind], max_positions: int) -> tuple[Rope, ...]:
    """One table a kind. A proportional one spans the whole head, with zero frequencies beyond its part."""
    out = []
    for name, kind in kinds.items():
        out.append(
            rope_from_config(
                config, kind.head_dim, max_positions=max_positions, rotary=kind.head_dim, layer_type=name
            )
        )
    return tuple(out)
