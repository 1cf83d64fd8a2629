"""What each layer of a model caches of a token on one rank, and up to which length."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.partition import local_kv_heads
from vramledger.formats.kv_shapes import Heads, Latent, Shape
from vramledger.models.mixers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    EncoderAttention,
    FullAttention,
    IndexedAttention,
    LatentAttention,
    SharedKvAttention,
    SlidingWindowAttention,
    SparseIndexer,
    TokenMixer,
)
from vramledger.models.model import Model
from vramledger.units import ceil_div


class CachedLayers(Struct, frozen=True, kw_only=True):
    """Layers that cache alike.

    `limit_tokens` bounds what stays (a window or a chunk; 0: the whole context), and with `tokens_per_entry` above 1 so
    many tokens share an entry. An encoder's output takes `fixed_tokens` whatever the length (0: unknown, and then it
    is not counted). `index_bytes` is an index key a token beside it, which no format changes.
    """

    kind: str
    num_layers: int
    shape: Shape
    limit_tokens: int = 0
    fixed_tokens: int | None = None
    tokens_per_entry: int = 1
    index_bytes: int = 0

    def entries(self, tokens: int, *, slides: bool = True) -> int:
        """Entries kept after `tokens` tokens; without `slides` a window is not cut."""
        if self.fixed_tokens is not None:
            return self.fixed_tokens
        kept = min(tokens, self.limit_tokens) if self.limit_tokens and slides else tokens
        return kept // self.tokens_per_entry


def cached_layers(model: Model, tp: int) -> tuple[CachedLayers, ...]:
    """The caches of the decoder's layers on one of `tp` ranks; constant states are not among them.

    Raises FlagError where KV heads and `tp` do not divide each other.
    """
    counts: dict[CachedLayers, int] = {}
    for mixer in model.token_mixers:
        for cached in _caches(mixer, tp):
            counts[cached] = counts.get(cached, 0) + 1
    return tuple(replace(cached, num_layers=count) for cached, count in counts.items())


def _caches(mixer: TokenMixer, tp: int) -> tuple[CachedLayers, ...]:
    match mixer:
        case SharedKvAttention() | EncoderAttention():
            return ()
        case LatentAttention():
            shape = Latent(kv_lora_rank=mixer.kv_lora_rank, rope_dim=mixer.rope_dim)
            return (
                CachedLayers(kind="mla", num_layers=1, shape=shape, index_bytes=_index_bytes(mixer.indexer)),
            )
        case CompressedAttention():
            return _compressed(mixer)
        case FullAttention():
            return (_heads(mixer, tp),)
        case _:
            return ()


def _heads(mixer: FullAttention, tp: int) -> CachedLayers:
    shape = Heads(
        kv_heads=local_kv_heads(mixer.kv_heads, tp, flag="tp"),
        head_dim=mixer.head_dim,
        v_head_dim=mixer.v_head_dim,
    )
    kind, limit, index = "full_attention", 0, 0
    fixed: int | None = None
    match mixer:
        case SlidingWindowAttention(window=window):
            kind, limit = "sliding_window", window
        case ChunkedAttention(chunk=chunk):
            kind, limit = "chunked_local", chunk
        case CrossAttention(max_encoder_tokens=most):
            kind, fixed = "cross_attention", most
        case IndexedAttention(indexer=indexer):
            kind, index = "indexed_attention", 2 * indexer.head_dim
    return CachedLayers(
        kind=kind, num_layers=1, shape=shape, limit_tokens=limit, fixed_tokens=fixed, index_bytes=index
    )


def _index_bytes(indexer: SparseIndexer | None) -> int:
    """fp8 with an fp32 scale for every 128 elements (vllm v1/attention/backends/mla/indexer.py)."""
    if indexer is None or not indexer.keeps_keys:
        return 0
    return indexer.head_dim + 4 * ceil_div(indexer.head_dim, 128)


def _compressed(mixer: CompressedAttention) -> tuple[CachedLayers, ...]:
    """A window of single vectors, and a history of one entry for every `compress_ratio` tokens."""
    shape = Latent(kv_lora_rank=mixer.head_dim - mixer.rope_dim, rope_dim=mixer.rope_dim)
    window = CachedLayers(kind="sliding_window_mla", num_layers=1, shape=shape, limit_tokens=mixer.window)
    if mixer.compress_ratio <= 1:
        return (window,)
    history = CachedLayers(
        kind="compressed_mla",
        num_layers=1,
        shape=shape,
        tokens_per_entry=mixer.compress_ratio,
        index_bytes=_index_bytes(mixer.indexer),
    )
    return window, history
