"""Llama-Nemotron models found by architecture search: each block has its own attention and MLP, or none
(NVIDIA's modeling_decilm.py, class DeciLMForCausalLM).

`block_configs` says for each layer how many query heads share a KV head and how wide the MLP is as a multiple
of the hidden width; either part may be left out or replaced by one square matrix.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from vramledger.models.blocks import gated_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, even_heads, full_attention, sliding_attention
from vramledger.models.dense import Skeleton, skeleton
from vramledger.models.mixers import DenseMlp, FullAttention, Layer
from vramledger.models.model import Model
from vramledger.models.tensors import Role, hidden
from vramledger.units import ceil_div

_INTERMEDIATE_STEP = 256


class _Block(Struct, frozen=True, kw_only=True):
    """One layer. `heads` is None without attention and `inner` 0 without an MLP; a part may be one matrix."""

    heads: Heads | None
    window: int | None
    linear_attention: bool
    inner: int
    linear_mlp: bool


def describe(config: Config, model_id: str) -> Model:
    even = even_heads(config, config.integer("hidden_size"), config.integer("num_attention_heads"))
    count = config.num_layers()
    blocks = tuple(_block(block, even) for block in config.subs("block_configs"))
    if len(blocks) != count:
        raise config.fail("block_configs", f"has {len(blocks)} entries for {count} layers")

    frame = skeleton(config, "DeciLMForCausalLM", heads=even)
    for block in dict.fromkeys(blocks):
        _tensors(frame, block, tuple(index for index, other in enumerate(blocks) if other == block))
    layers = tuple(
        Layer(index=index, token_mixers=_mixers(block), channel_mixer=_channel(block))
        for index, block in enumerate(blocks)
    )
    return frame.finish(model_id, layers, rope=(frame.rope(),))


def _block(config: Config, even: Heads) -> _Block:
    attention, ffn = config.sub("attention"), config.sub("ffn")
    heads = None
    linear_attention = attention.flag("replace_with_linear", default=False)
    if not attention.flag("no_op", default=False) and not linear_attention:
        group = attention.integer("n_heads_in_group")
        if even.heads % group:
            raise attention.fail("n_heads_in_group", f"{group} does not divide {even.heads} heads")
        heads = replace(even, kv=even.heads // group)
    linear_mlp = ffn.flag("replace_with_linear", default=False)
    inner = 0
    if not ffn.flag("no_op", default=False) and not linear_mlp:
        inner = _inner(ffn, even.width)
    return _Block(
        heads=heads,
        window=attention.optional_int("window_length", minimum=1),
        linear_attention=linear_attention,
        inner=inner,
        linear_mlp=linear_mlp,
    )


def _inner(ffn: Config, width: int) -> int:
    """The MLP's width: two thirds of the multiple, rounded up to a step of 256."""
    stated = ffn.optional_int("intermediate_size", minimum=1)
    if stated is not None:
        return stated
    multiple = ffn.number("ffn_mult")
    if not 0 < multiple <= 1024:
        raise ffn.fail("ffn_mult", f"is {multiple}, outside 0 to 1024")
    return ceil_div(int(2 * multiple * width / 3), _INTERMEDIATE_STEP) * _INTERMEDIATE_STEP


def _tensors(frame: Skeleton, block: _Block, layers: tuple[int, ...]) -> None:
    place = frame.layer.at(frame.layer.prefix, layers)
    width = frame.heads.width
    bias = frame.config.flag("attention_bias", default=False)
    if block.heads is not None:
        frame.attention(place=place, heads=block.heads, bias=bias, o_bias=bias)
    elif block.linear_attention:
        place.linear("self_attn.linear_attn", Role.OTHER, hidden(width), hidden(width))
    if block.heads is not None or block.linear_attention:
        place.norm("input_layernorm", width)
    if block.inner:
        mlp_bias = frame.config.flag("mlp_bias", default=False)
        gated_mlp(place, "mlp", width=width, inner=block.inner, bias=mlp_bias)
    elif block.linear_mlp:
        place.linear("mlp.linear_mlp", Role.OTHER, hidden(width), hidden(width))
    if block.inner or block.linear_mlp:
        place.norm("post_attention_layernorm", width)


def _mixers(block: _Block) -> tuple[FullAttention, ...]:
    if block.heads is None:
        return ()
    if block.window is None:
        return (full_attention(block.heads),)
    return (sliding_attention(block.heads, block.window),)


def _channel(block: _Block) -> DenseMlp | None:
    return DenseMlp(intermediate=block.inner, gated=True) if block.inner else None
