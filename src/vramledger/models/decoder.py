"""Assembly of the common case: a decoder of attention and MLP layers under one prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.mixers import ChannelMixer, FullAttention, Layer, SlidingWindowAttention, TokenMixer
from vramledger.models.model import Model, Rope


class Heads(Struct, frozen=True, kw_only=True):
    """Head counts and width as a config states them."""

    width: int
    heads: int
    kv: int
    head_dim: int


def heads_from_config(
    config: Config,
    *,
    default_kv: int | None = None,
    default_heads: int | None = None,
    default_head_dim: int | None = None,
    head_dim_keys: tuple[str, ...] = ("head_dim",),
) -> Heads:
    """hidden_size, num_attention_heads, num_key_value_heads and head_dim, with Llama's defaults.

    A class with a head_dim of its own gives `default_head_dim`. Raises ConfigError when the width does not
    divide by the heads and no head_dim is given, or the query heads do not divide by the KV heads.
    """
    width = config.integer("hidden_size")
    if default_heads is None:
        heads = config.integer("num_attention_heads")
    else:
        heads = config.integer("num_attention_heads", default=default_heads)
    kv = config.integer("num_key_value_heads", default=default_kv or heads)
    stated = default_head_dim is not None or any(key in config for key in head_dim_keys)
    if not stated and width % heads:
        raise config.fail("hidden_size", f"{width} does not divide by num_attention_heads {heads}")
    if heads % kv:
        raise config.fail("num_attention_heads", f"{heads} does not divide by num_key_value_heads {kv}")
    head_dim = config.integer(*head_dim_keys, default=default_head_dim or width // heads)
    return Heads(width=width, heads=heads, kv=kv, head_dim=head_dim)


def even_heads(config: Config, width: int, heads: int) -> Heads:
    """Heads that share out the hidden width, each with its own keys and values.

    Raises ConfigError when the width does not divide by the heads.
    """
    if width % heads:
        raise config.fail("num_attention_heads", f"{heads} does not divide the hidden width {width}")
    return Heads(width=width, heads=heads, kv=heads, head_dim=width // heads)


@lru_cache(maxsize=64)  # equal layers share one mixer, which rules then read once
def full_attention(heads: Heads) -> FullAttention:
    return FullAttention(
        q_heads=heads.heads, kv_heads=heads.kv, head_dim=heads.head_dim, v_head_dim=heads.head_dim
    )


@lru_cache(maxsize=64)
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
        state_dtype=_state_dtype(config),
        notes=tuple(config.notes),
    )


def _state_dtype(config: Config) -> DType | None:
    """The element type that hybrid configs declare for recurrent states (Qwen3.5, Nemotron-H)."""
    name = config.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="auto")
    return None if name == "auto" else parse_dtype(name)


def layer_kinds(config: Config, count: int, is_sliding: Callable[[int], bool]) -> tuple[str, ...]:
    """Each layer's kind, full_attention or sliding_attention: the file's `layer_types`, else the class's rule.

    Raises ConfigError for a list of another length than the layers or with an unknown kind.
    """
    stated = config.texts("layer_types")
    if not stated:
        return tuple("sliding_attention" if is_sliding(index) else "full_attention" for index in range(count))
    if len(stated) != count:
        raise config.fail("layer_types", f"has {len(stated)} entries for {count} layers")
    for kind in stated:
        if kind not in ("full_attention", "sliding_attention"):
            raise config.fail("layer_types", f"holds {kind!r}, which this architecture does not have")
    return stated


def windowed_mixers(
    config: Config, heads: Heads, count: int, is_sliding: Callable[[int], bool]
) -> tuple[FullAttention, ...]:
    """A mixer a layer; without a `sliding_window` every layer attends to the whole context."""
    window = config.optional_int("sliding_window", minimum=1)
    full = full_attention(heads)
    sliding = full if window is None else sliding_attention(heads, window)
    kinds = layer_kinds(config, count, is_sliding)
    return tuple(sliding if kind == "sliding_attention" else full for kind in kinds)


def layers_of_mixers(mixers: Sequence[TokenMixer], channel: ChannelMixer) -> tuple[Layer, ...]:
    """One layer for each mixer, all with the same channel mixer."""
    return tuple(
        Layer(index=index, token_mixers=(mixer,), channel_mixer=channel) for index, mixer in enumerate(mixers)
    )
