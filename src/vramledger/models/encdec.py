"""Encoder-decoder layers: BART's, which Whisper and SeamlessM4T repeat under slightly other names."""

from __future__ import annotations

from msgspec import Struct

from vramledger.models.blocks import Place, attention, plain_mlp
from vramledger.models.config import Config
from vramledger.models.mixers import (
    ChannelMixer,
    CrossAttention,
    DenseMlp,
    EncoderAttention,
    FullAttention,
    Layer,
)


class Stack(Struct, frozen=True, kw_only=True):
    """One side of an encoder-decoder model: `count` layers of `heads` and an MLP of `inner`."""

    width: int
    count: int
    heads: int
    inner: int

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


class LayerNames(Struct, frozen=True, kw_only=True):
    """What a class calls its parts. `ffn_norm` is the norm beside the MLP."""

    cross: str = "encoder_attn"
    ffn: str = ""
    ffn_norm: str = "final_layer_norm"


def stack_from_config(config: Config, prefix: str, *, width_keys: tuple[str, ...] = ("d_model",)) -> Stack:
    """The keys `{prefix}_layers`, `{prefix}_attention_heads` and `{prefix}_ffn_dim`. Raises ConfigError."""
    width = config.integer(*width_keys)
    heads = config.integer(f"{prefix}_attention_heads")
    if width % heads:
        raise config.fail(width_keys[0], f"{width} does not divide by {prefix}_attention_heads {heads}")
    return Stack(
        width=width,
        count=config.num_layers(f"{prefix}_layers"),
        heads=heads,
        inner=config.integer(f"{prefix}_ffn_dim"),
    )


def list_layers(
    place: Place,
    stack: Stack,
    names: LayerNames,
    *,
    cross: bool,
    k_bias: bool = True,
) -> None:
    """Self-attention, cross-attention in a decoder, and an MLP, each with a norm; everything has a bias
    except, in Whisper, the keys."""
    attentions = ("self_attn", names.cross) if cross else ("self_attn",)
    for name in attentions:
        list_attention(place, name, stack, k_bias=k_bias)
    prefix = f"{names.ffn}." if names.ffn else ""
    plain_mlp(place, f"{prefix}fc1", f"{prefix}fc2", width=stack.width, inner=stack.inner, bias=True)
    place.norm(names.ffn_norm, stack.width, bias=True)


def list_attention(place: Place, name: str, stack: Stack, *, k_bias: bool = True) -> None:
    """One attention with its norm (`{name}_layer_norm`)."""
    attention(
        place,
        name,
        width=stack.width,
        heads=stack.heads,
        kv=stack.heads,
        head_dim=stack.head_dim,
        bias=True,
        k_bias=k_bias,
        o_bias=True,
        names=("q_proj", "k_proj", "v_proj", "out_proj"),
    )
    place.norm(f"{name}_layer_norm", stack.width, bias=True)


def encoder_layers(count: int, *, heads: int, head_dim: int, channel: ChannelMixer) -> tuple[Layer, ...]:
    mixer = EncoderAttention(q_heads=heads, kv_heads=heads, head_dim=head_dim, v_head_dim=head_dim)
    return tuple(Layer(index=index, token_mixers=(mixer,), channel_mixer=channel) for index in range(count))


def decoder_layers(
    count: int, *, heads: int, head_dim: int, channel: ChannelMixer, max_encoder_tokens: int
) -> tuple[Layer, ...]:
    """Layers that attend to their own tokens, then to the encoder's."""
    own = FullAttention(q_heads=heads, kv_heads=heads, head_dim=head_dim, v_head_dim=head_dim)
    cross = CrossAttention(
        q_heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        max_encoder_tokens=max_encoder_tokens,
    )
    return tuple(
        Layer(index=index, token_mixers=(own, cross), channel_mixer=channel) for index in range(count)
    )


def encoder_stack(stack: Stack) -> tuple[Layer, ...]:
    """An encoder's layers with its plain MLP."""
    mlp = DenseMlp(intermediate=stack.inner, gated=False)
    return encoder_layers(stack.count, heads=stack.heads, head_dim=stack.head_dim, channel=mlp)


def decoder_stack(stack: Stack, *, max_encoder_tokens: int) -> tuple[Layer, ...]:
    """A decoder's layers with its plain MLP."""
    mlp = DenseMlp(intermediate=stack.inner, gated=False)
    return decoder_layers(
        stack.count,
        heads=stack.heads,
        head_dim=stack.head_dim,
        channel=mlp,
        max_encoder_tokens=max_encoder_tokens,
    )
