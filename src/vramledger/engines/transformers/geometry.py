"""What the paged cache asks of a model: widths, and layers by kind of attention.

Source: transformers generation/continuous_batching/cache.py (`group_layers_by_attn_type`) and utils.py
(`find_head_dim`, `find_num_key_value_heads`).
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.errors import FlagError
from vramledger.models.mixers import (
    ChunkedAttention,
    CrossAttention,
    EncoderAttention,
    FullAttention,
    IndexedAttention,
    Layer,
    SharedKvAttention,
    SlidingWindowAttention,
)
from vramledger.models.model import Model

FULL = "full_attention"
SLIDING = "sliding_attention"
_NOT_CACHED = (ChunkedAttention, CrossAttention, EncoderAttention, IndexedAttention)


class AttentionKind(Struct, frozen=True, kw_only=True):
    """The layers of one kind of attention; `window` is in tokens, 0 for full attention."""

    name: str
    num_layers: int
    window: int = 0


class Geometry(Struct, frozen=True, kw_only=True):
    """A model as the memory handler sees it. Widths are the whole model's; the cache has one head width for all."""

    hidden_size: int
    vocab_size: int
    heads: int
    kv_heads: int
    head_dim: int
    kinds: tuple[AttentionKind, ...]

    @property
    def num_layers(self) -> int:
        return sum(kind.num_layers for kind in self.kinds)

    @property
    def has_windows(self) -> bool:
        return any(kind.window for kind in self.kinds)


def geometry(model: Model) -> Geometry:
    """Widths and kinds of attention, kinds in the order of their first layer.

    Raises FlagError for a model that continuous batching has no cache for: anything but full and windowed attention,
    heads of several widths, an encoder, no attention in a layer.
    """
    if model.encoder_layers:
        raise _unserved(model, "reads an encoder's output in its decoder")
    if model.is_pooling:
        raise _unserved(model, "is made to embed or classify, not to generate")
    counts: dict[str, int] = {}
    windows: set[int] = set()
    widths: set[tuple[int, int, int]] = set()
    for layer in model.layers:
        mixer = _attention(model, layer)
        widths.add((mixer.q_heads, mixer.kv_heads, mixer.head_dim))
        if mixer.head_dim != mixer.v_head_dim:
            raise _unserved(model, f"has keys of {mixer.head_dim} and values of {mixer.v_head_dim}")
        owner = (
            _attention(model, model.layers[mixer.source_layer])
            if isinstance(mixer, SharedKvAttention)
            else mixer
        )
        name = FULL
        if isinstance(owner, SlidingWindowAttention):
            name = SLIDING
            windows.add(owner.window)
        counts[name] = counts.get(name, 0) + 1
    if len(widths) != 1:
        raise _unserved(
            model, "has layers whose heads differ, and the cache has one head width for all layers"
        )
    if len(windows) > 1:
        raise _unserved(model, f"has windows of {', '.join(map(str, sorted(windows)))} tokens")
    ((heads, kv_heads, head_dim),) = widths
    return Geometry(
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        kinds=tuple(
            AttentionKind(name=name, num_layers=count, window=max(windows) if name == SLIDING else 0)
            for name, count in counts.items()
        ),
    )


def _attention(model: Model, layer: Layer) -> FullAttention:
    if len(layer.token_mixers) == 1:
        (mixer,) = layer.token_mixers
        if isinstance(mixer, FullAttention) and not isinstance(mixer, _NOT_CACHED):
            return mixer
    kinds = " and ".join(type(mixer).__name__ for mixer in layer.token_mixers) or "no attention"
    raise _unserved(model, f"has {kinds} in layer {layer.index}")


def _unserved(model: Model, why: str) -> FlagError:
    return FlagError(
        f"transformers' continuous batching caches full and sliding attention only; {model.id} {why}",
        flag="continuous_batching",
        value=model.architecture,
    )
