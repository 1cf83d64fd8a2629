"""Assembly of the common case: a decoder of attention and MLP layers under one prefix."""

from __future__ import annotations

from dataclasses import dataclass

from vramledger.formats.dtypes import DType
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.mixers import ChannelMixer, FullAttention, Layer, SlidingWindowAttention, TokenMixer
from vramledger.models.model import Model, Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Head counts and width as a config states them."""

    width: int
    heads: int
    kv: int
    head_dim: int


def heads_from_config(config: Config, *, default_kv: int | None = None) -> Heads:
    """hidden_size, num_attention_heads, num_key_value_heads and head_dim, with Llama's defaults.

    Raises ConfigError when the width does not divide by the heads and no head_dim is given, or the query
    heads do not divide by the KV heads.
    """
    width = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    kv = config.integer("num_key_value_heads", default=default_kv or heads)
    if "head_dim" not in config and width % heads:
        raise config.fail("hidden_size", f"{width} does not divide by num_attention_heads {heads}")
    if heads % kv:
        raise config.fail("num_attention_heads", f"{heads} does not divide by num_key_value_heads {kv}")
    return Heads(width=width, heads=heads, kv=kv, head_dim=config.integer("head_dim", default=width // heads))


def full_attention(heads: Heads) -> FullAttention:
    return FullAttention(
        q_heads=heads.heads, kv_heads=heads.kv, head_dim=heads.head_dim, v_head_dim=heads.head_dim
    )


def sliding_attention(heads: Heads, window: int) -> SlidingWindowAttention:
    return SlidingWindowAttention(
        q_heads=heads.heads,
        kv_heads=heads.kv,
        head_dim=heads.head_dim,
        v_head_dim=heads.head_dim,
        window=window,
    )


def uniform_layers(count: int, mixer: TokenMixer, channel: ChannelMixer) -> tuple[Layer, ...]:
    return tuple(Layer(index=index, token_mixers=(mixer,), channel_mixer=channel) for index in range(count))


def assemble(
    config: Config,
    model_id: str,
    root: Place,
    *,
    default_class: str,
    width: int,
    rows: int,
    positions: int,
    tied: bool,
    layers: tuple[Layer, ...],
    rope: tuple[Rope, ...] = (),
    encoder_layers: tuple[Layer, ...] = (),
    draft_layers: tuple[Layer, ...] = (),
    is_pooling: bool = False,
    default_dtype: DType = DType.F32,
) -> Model:
    """The model whose tensors were listed into `root`; class, type, element type and notes come from the config.

    `default_class` names the class where the file has no `architectures`, `default_dtype` the element type
    where it has no `dtype`.
    """
    classes = config.texts("architectures")
    return Model(
        id=model_id,
        architecture=classes[0] if classes else default_class,
        model_type=config.text("model_type", default=""),
        hidden_size=width,
        vocab_size=rows,
        max_position_embeddings=positions,
        dtype=config.dtype(default_dtype),
        tie_word_embeddings=tied,
        layers=layers,
        tensors=tuple(root.into),
        rope=rope,
        encoder_layers=encoder_layers,
        draft_layers=draft_layers,
        is_pooling=is_pooling,
        notes=tuple(config.notes),
    )
