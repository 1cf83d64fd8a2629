"""What an engine's pool hands out for a request, taken from a plan."""

from __future__ import annotations

from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from vramledger.kvcache.units import ALL, Kept
from vramledger.models.mixers import (
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    SlidingWindowAttention,
)
from vramledger.models.model import Model
from vramledger.pool import KvGroup, KvPart, KvPool

CONSTANT = frozenset({"mamba", "recurrent", "cross_attention", "compressor_state"})
"""Kinds whose bytes do not depend on the length of a request."""


class CachePart(Struct, frozen=True, kw_only=True):
    """Layers whose blocks have the same bytes; each block is in `tensors` pieces (keys and values, or one)."""

    layers: int
    page_bytes: int
    tensors: int


class CacheGroup(Struct, frozen=True, kw_only=True):
    """Layers that share block ids. `block_bytes` is what one block takes of the pool, `pool` tells which."""

    kind: str
    block_size: int
    parts: tuple[CachePart, ...]
    block_bytes: int
    kept: Kept = ALL
    constant_blocks: int = 0
    pool: int = 0

    @property
    def content_bytes(self) -> int:
        """One block of all its layers, without what only pads the pool."""
        return sum(part.layers * part.page_bytes for part in self.parts)

    @property
    def token_bytes(self) -> Fraction:
        return Fraction(self.content_bytes, self.block_size)


class CacheShape(Struct, frozen=True, kw_only=True):
    """The groups of one rank and the pools they draw from, by bytes and blocks; `padding_layers` are those that a
    pool has beside a group's own."""

    groups: tuple[CacheGroup, ...]
    pool_blocks: tuple[int, ...]
    pool_bytes: int
    max_len: int
    pool_parts: tuple[tuple[CachePart, ...], ...]

    @property
    def growing(self) -> tuple[CacheGroup, ...]:
        return tuple(group for group in self.groups if not group.constant_blocks)

    @property
    def constant(self) -> tuple[CacheGroup, ...]:
        return tuple(group for group in self.groups if group.constant_blocks)


def cache_shape(pool: KvPool, model: Model) -> CacheShape:
    """The pool of a plan for `model`. Windows are the model's; where it has several, the widest."""
    groups: list[CacheGroup] = []
    blocks: list[int] = []
    parts: list[tuple[CachePart, ...]] = []
    shared: int | None = None
    for group in pool.groups:
        own = _parts(group, one_vector=not model.has_mixer(FullAttention))
        padded = _padded(own, group.padding_layers)
        if group.pool_blocks is not None:
            number, block_bytes = len(blocks), sum(part.layers * part.page_bytes for part in padded)
            blocks.append(group.pool_blocks.expected)
            parts.append(padded)
        else:
            if shared is None:
                shared = len(blocks)
                blocks.append(pool.num_blocks.expected)
                parts.append(padded)
            number, block_bytes = shared, pool.bytes_per_block
            parts[shared] = max(parts[shared], padded, key=_bytes)
        groups.append(
            CacheGroup(
                kind=group.kind,
                block_size=group.block_size,
                parts=own,
                block_bytes=block_bytes,
                kept=_kept(group.kind, model),
                constant_blocks=group.blocks_per_request if group.kind in CONSTANT else 0,
                pool=number,
            )
        )
    return CacheShape(
        groups=tuple(groups),
        pool_blocks=tuple(blocks),
        pool_bytes=pool.bytes.expected,
        max_len=pool.context_len,
        pool_parts=tuple(parts),
    )


def with_windows(pool: KvPool, model: Model) -> KvPool:
    """The pool with `model`'s windows and chunks in groups that do not state theirs."""
    groups = []
    for group in pool.groups:
        kept = _kept(group.kind, model)
        window = group.window_tokens or kept.window or kept.chunk or None
        groups.append(replace(group, window_tokens=window))
    return replace(pool, groups=tuple(groups))


def _parts(group: KvGroup, *, one_vector: bool) -> tuple[CachePart, ...]:
    parts = group.parts or (
        KvPart(kind=group.kind, num_layers=group.num_layers, page_bytes=group.page_bytes),
    )
    return tuple(_part(part, one_vector=one_vector) for part in parts)


def _part(part: KvPart, *, one_vector: bool) -> CachePart:
    """Keys and values are two tensors; a latent, an index key or a state is one, and so is what does not halve."""
    single = one_vector or "mla" in part.kind or part.kind in CONSTANT or part.page_bytes % 2
    return CachePart(layers=part.num_layers, page_bytes=part.page_bytes, tensors=1 if single else 2)


def _padded(parts: tuple[CachePart, ...], padding_layers: int) -> tuple[CachePart, ...]:
    if not padding_layers:
        return parts
    first = parts[0]
    wider = CachePart(
        layers=first.layers + padding_layers, page_bytes=first.page_bytes, tensors=first.tensors
    )
    return (wider, *parts[1:])


def _bytes(parts: tuple[CachePart, ...]) -> int:
    return sum(part.layers * part.page_bytes for part in parts)


def _kept(kind: str, model: Model) -> Kept:
    mixers = model.token_mixers
    if any(word in kind for word in ("sliding", "window", "swa")):
        windows = [m.window for m in mixers if isinstance(m, SlidingWindowAttention | CompressedAttention)]
        return Kept(window=max(windows, default=0))
    if "chunk" in kind:
        return Kept(chunk=max((m.chunk for m in mixers if isinstance(m, ChunkedAttention)), default=0))
    return ALL
