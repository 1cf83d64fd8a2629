"""Llama 4's language model (transformers models/llama4): chunked local layers with rotary embeddings, full
layers without, experts in some or all layers.

The BF16 release fuses experts as [experts, in, out]; quantised releases store them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.models.blocks import SHARED, Place, fused_experts, gated_mlp, routed_experts, router
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import Heads, assemble, full_attention, heads_from_config
from vramledger.models.mixers import ChunkedAttention, DenseMlp, Layer, MixtureOfExperts, TokenMixer
from vramledger.models.model import Model
from vramledger.models.moe import attends, kinds, mixture_from_config, numbers
from vramledger.models.rope import rope_from_config


def describe(config: Config, model_id: str) -> Model:
    heads = heads_from_config(config, default_kv=8)
    width = heads.width
    count = config.num_layers()
    rows = config.integer("vocab_size")
    positions = config.integer("max_position_embeddings", default=131072)
    tied = config.flag("tie_word_embeddings", default=False)
    bias = config.flag("attention_bias", default=False)
    dense_inner = config.integer("intermediate_size_mlp", default=16384)
    experts = mixture_from_config(config, count=("num_local_experts",), inner=("intermediate_size",))
    moe = MixtureOfExperts(
        num_experts=experts.num_experts,
        top_k=experts.top_k,
        intermediate=experts.intermediate,
        shared_intermediate=experts.intermediate,
    )
    sparse = _moe_layers(config, count)

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    layer = root.at("model.layers.{layer}.", range(count))
    attends(heads, bias=bias, o_bias=bias)(layer)
    layer.norm("input_layernorm", width)
    layer.norm("post_attention_layernorm", width)
    fused = "quantization_config" not in config
    _mixture(root.at(layer.prefix, sparse), moe, width, fused=fused)
    dense = root.at(layer.prefix, (index for index in range(count) if index not in set(sparse)))
    gated_mlp(dense, "feed_forward", width=width, inner=dense_inner)
    root.final_norm("norm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    plain = DenseMlp(intermediate=dense_inner, gated=True)
    return assemble(
        config,
        model_id,
        root,
        default_class="Llama4ForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(index=index, token_mixers=(mixer,), channel_mixer=moe if index in set(sparse) else plain)
            for index, mixer in enumerate(_mixers(config, count, heads))
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),),
    )


def _mixture(place: Place, moe: MixtureOfExperts, width: int, *, fused: bool) -> None:
    name, inner, count = "feed_forward", moe.intermediate, moe.num_experts
    router(place, f"{name}.router", width=width, count=count)
    if fused:
        fused_experts(place, f"{name}.experts", width=width, inner=inner, count=count, transposed=True)
    else:
        routed_experts(place, f"{name}.experts", width=width, inner=inner, count=count)
    shared = moe.shared_intermediate
    gated_mlp(place, f"{name}.shared_expert", width=width, inner=shared, roles=SHARED)


def _moe_layers(config: Config, count: int) -> Sequence[int]:
    """`moe_layers`, else every `interleave_moe_layer_step`-th layer (Maverick: 2, Scout: 1)."""
    if "moe_layers" in config:
        return tuple(sorted({index for index in config.integers("moe_layers") if index < count}))
    step = config.integer("interleave_moe_layer_step", default=1, maximum=MAX_LAYERS)
    return range(step - 1, count, step)


def _mixers(config: Config, count: int, heads: Heads) -> tuple[TokenMixer, ...]:
    """Layers with rotary embeddings see their own chunk only; the others, every `no_rope_layer_interval`-th,
    see everything. A null chunk size makes all of them full."""
    types = kinds(config, "layer_types", count, ("chunked_attention", "full_attention"))
    if not types:
        interval = config.integer("no_rope_layer_interval", default=4)
        rotary = numbers(config, "no_rope_layers", count) or tuple(
            (index + 1) % interval for index in range(count)
        )
        types = tuple("chunked_attention" if flag else "full_attention" for flag in rotary)
    full = full_attention(heads)
    chunk = config.optional_int("attention_chunk_size")
    present = config.keys()
    if "attention_chunk_size" not in present:
        chunk = 8192
        config.assume("attention_chunk_size is not stated: the class default of 8192 taken")
    if not chunk:
        return (full,) * count
    local = ChunkedAttention(
        q_heads=full.q_heads,
        kv_heads=full.kv_heads,
        head_dim=full.head_dim,
        v_head_dim=full.v_head_dim,
        chunk=chunk,
    )
    return tuple(local if kind == "chunked_attention" else full for kind in types)
