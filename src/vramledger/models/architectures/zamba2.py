"""Zamba2: Mamba-2 layers, and a few transformer blocks that several layers share (transformers
models/zamba2/modeling_zamba2.py).

A shared block's weights exist once, under the first layer that runs it; every layer that runs it has its own
KV cache, its own low-rank adapter and its own output projection. The block reads the hidden state beside the
embedding, so it is twice as wide at its input.
"""

from __future__ import annotations

from vramledger.models.blocks import Place, attention, fused_gated_mlp, layers_of
from vramledger.models.config import MAX_LAYERS, Config
from vramledger.models.decoder import Heads, assemble, full_attention
from vramledger.models.hybrid import layer_types
from vramledger.models.mixers import DenseMlp, Layer, Mamba2
from vramledger.models.model import Model
from vramledger.models.recurrent import checked_mamba2, mamba2
from vramledger.models.rope import rope_from_config
from vramledger.models.tensors import Axis, Role, gate_up, hidden, latent, q_heads

HYBRID, MAMBA = "hybrid", "mamba"


def describe(config: Config, model_id: str) -> Model:
    width = config.integer("hidden_size", default=2560)
    count = config.num_layers(default=54)
    rows = config.integer("vocab_size", default=32000)
    inner = config.integer("intermediate_size", default=4 * width)
    positions = config.integer("max_position_embeddings", default=4096)
    tied = config.flag("tie_word_embeddings", default=True)
    heads = _heads(config, width)
    recurrent = _mamba(config, width)
    types = _types(config, count)
    shared_by = layers_of(types, HYBRID)
    blocks = min(config.integer("num_mem_blocks", default=1, maximum=MAX_LAYERS), len(shared_by))

    root = Place(prefix="model.")
    root.embedding("embed_tokens", rows, width)
    plain = root.at("model.layers.{layer}.", layers_of(types, MAMBA))
    _list_mamba(plain, config, recurrent, width)
    hybrid = root.at("model.layers.{layer}.", shared_by)
    hybrid.linear("linear", Role.OTHER, hidden(width), hidden(width))
    _list_mamba(hybrid.at(f"{hybrid.prefix}mamba_decoder."), config, recurrent, width)
    _list_shared(hybrid.at(f"{hybrid.prefix}shared_transformer.", shared_by[:blocks]), config, heads, inner)
    _list_adapters(hybrid.at(f"{hybrid.prefix}shared_transformer."), config, heads, inner)
    root.final_norm("final_layernorm", width)
    if not tied:
        root.at("").lm_head("lm_head", rows, width)

    mlp = DenseMlp(intermediate=inner, gated=True)
    rotates = config.flag("use_mem_rope", default=False)
    return assemble(
        config,
        model_id,
        root,
        default_class="Zamba2ForCausalLM",
        width=width,
        rows=rows,
        positions=positions,
        tied=tied,
        layers=tuple(
            Layer(index=index, token_mixers=(full_attention(heads), recurrent), channel_mixer=mlp)
            if kind == HYBRID
            else Layer(index=index, token_mixers=(recurrent,), channel_mixer=None)
            for index, kind in enumerate(types)
        ),
        rope=(rope_from_config(config, heads.head_dim, max_positions=positions),)
        if rotates and shared_by
        else (),
    )


def _heads(config: Config, width: int) -> Heads:
    """Attention heads over the doubled width (`attention_hidden_size`)."""
    wide = config.integer("attention_hidden_size", default=2 * width)
    heads = config.integer("num_attention_heads", default=32)
    kv = config.integer("num_key_value_heads", default=heads)
    if wide % heads:
        raise config.fail("num_attention_heads", f"{heads} does not divide attention_hidden_size {wide}")
    if heads % kv:
        raise config.fail("num_attention_heads", f"{heads} does not divide by num_key_value_heads {kv}")
    return Heads(
        width=width,
        heads=heads,
        kv=kv,
        head_dim=config.integer("attention_head_dim", default=wide // heads),
    )


def _mamba(config: Config, width: int) -> Mamba2:
    inner = config.integer("mamba_expand", default=2, maximum=1024) * width
    heads = config.integer("n_mamba_heads", default=8)
    if inner % heads:
        raise config.fail("n_mamba_heads", f"{heads} does not divide the inner width {inner}")
    mixer = Mamba2(
        heads=heads,
        head_dim=inner // heads,
        groups=config.integer("mamba_ngroups", default=1),
        state=config.integer("mamba_d_state", default=64),
        conv_kernel=config.integer("mamba_d_conv", default=4, maximum=4096),
    )
    return checked_mamba2(config, mixer, inner=inner, heads_key="n_mamba_heads")


def _types(config: Config, count: int) -> tuple[str, ...]:
    """layers_block_type, or hybrid_layer_ids where only those are stated."""
    ids = frozenset(config.integers("hybrid_layer_ids", maximum=MAX_LAYERS))
    if ids and max(ids) >= count:
        raise config.fail("hybrid_layer_ids", f"names layer {max(ids)} of {count}")
    default = tuple(HYBRID if index in ids else MAMBA for index in range(count)) if ids else ""
    return layer_types(
        config, count, allowed=(HYBRID, MAMBA), default=default, keys=("layers_block_type", "layer_types")
    )


def _list_mamba(place: Place, config: Config, mixer: Mamba2, width: int) -> None:
    mamba2(
        place,
        "mamba",
        mixer,
        width=width,
        bias=config.flag("add_bias_linear", default=False),
        conv_bias=config.flag("use_conv_bias", default=True),
    )
    place.norm("input_layernorm", width)


def _list_shared(place: Place, config: Config, heads: Heads, inner: int) -> None:
    """The transformer block itself."""
    width = heads.width
    attention(
        place,
        "self_attn",
        width=2 * width,
        heads=heads.heads,
        kv=heads.kv,
        head_dim=heads.head_dim,
        out_width=width,
    )
    fused_gated_mlp(
        place,
        "feed_forward.gate_up_proj",
        "feed_forward.down_proj",
        width=width,
        inner=inner,
        bias=config.flag("add_bias_linear", default=False),
    )
    place.norm("input_layernorm", 2 * width)
    place.norm("pre_ff_layernorm", width)


def _list_adapters(place: Place, config: Config, heads: Heads, inner: int) -> None:
    """What tells one run of a shared block from another: a low-rank update a layer, in the block's own lists."""
    rank = latent(config.integer("adapter_rank", default=128))
    if config.flag("use_shared_mlp_adapter", default=True):
        name = "feed_forward.gate_up_proj_adapter_list"
        _adapter(place, name, rank, hidden(heads.width), gate_up(inner))
    if config.flag("use_shared_attention_adapter", default=False):
        for part in ("q", "k", "v"):
            name = f"self_attn.linear_{part}_adapter_list"
            _adapter(place, name, rank, hidden(2 * heads.width), q_heads(heads.heads, heads.head_dim))


def _adapter(place: Place, name: str, rank: Axis, inp: Axis, out: Axis) -> None:
    place.linear(f"{name}.{{block}}.0", Role.OTHER, rank, inp)
    place.linear(f"{name}.{{block}}.1", Role.OTHER, out, rank)
