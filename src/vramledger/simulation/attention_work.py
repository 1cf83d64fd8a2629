"""What attention reads and computes in a step, by the model's token mixers and the cache of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from vramledger.kvcache.shape import CONSTANT, CacheGroup, cache_shape
from vramledger.models.mixers import (
    ChunkedAttention,
    CrossAttention,
    EncoderAttention,
    FullAttention,
    LatentAttention,
    SharedKvAttention,
    SlidingWindowAttention,
)

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.models.model import Model


def longest_tokens(plan: Plan) -> int:
    """The longest that a sequence of a plan can get; 0 without a pool."""
    return 0 if plan.kv_pool is None else plan.kv_pool.context_len


def cache_bytes(plan: Plan, model: Model) -> tuple[Fraction, float]:
    """Bytes of a rank's cache that a step reads for each cached token, and for each sequence whatever its length (windows and what
    an indexer selects, taken as full, and states, read and written). Over all stages of a pipeline.

    A window that no sequence outgrows reads every token. An engine may keep every token of windowed layers; it reads the window.
    """
    if plan.kv_pool is None:
        return Fraction(0), 0.0
    longest = longest_tokens(plan)
    full, fixed = Fraction(0), Fraction(0)
    shape = cache_shape(plan.kv_pool, model).groups
    windows = [group.kept.window or group.kept.chunk for group in shape]
    share, window = (Fraction(0), 0) if any(windows) else _windowed(model, longest)
    selected = _selected_tokens(model)
    for group, kept, planned in zip(shape, windows, plan.kv_pool.groups, strict=True):
        if group.constant_blocks or group.kind in CONSTANT:
            fixed += 2 * _content_bytes(group)
        elif kept and kept < longest:
            fixed += kept * group.token_bytes
        elif selected and selected < longest:
            latent = sum(part.num_layers * part.page_bytes for part in planned.parts if part.kind == "mla")
            part = Fraction(latent, group.content_bytes) * group.token_bytes
            full += group.token_bytes - part
            fixed += selected * part
        else:
            full += (1 - share) * group.token_bytes
            fixed += share * window * group.token_bytes
    stages = max(plan.inputs.pp, 1)
    return full * stages, float(fixed * stages)


def _windowed(model: Model, longest: int) -> tuple[Fraction, int]:
    """The share of a token's cached elements that lies in layers with a window shorter than `longest`, and the widest such window."""
    caching = [
        mixer
        for mixer in model.token_mixers
        if isinstance(mixer, FullAttention)
        and not isinstance(mixer, SharedKvAttention | CrossAttention | EncoderAttention)
    ]
    spans = [(mixer.kv_elements_per_token, _span(mixer)) for mixer in caching]
    total = sum(elements for elements, _ in spans)
    bounded = [(elements, span) for elements, span in spans if span is not None and span < longest]
    if not total or not bounded:
        return Fraction(0), 0
    return Fraction(sum(elements for elements, _ in bounded), total), max(span for _, span in bounded)


def _span(mixer: object) -> int | None:
    match mixer:
        case SlidingWindowAttention(window=window):
            return window
        case ChunkedAttention(chunk=chunk):
            return chunk
        case _:
            return None


def _selected_tokens(model: Model) -> int:
    """Tokens that an indexer leaves to latent attention; 0 without one."""
    indexers = [mixer.indexer for mixer in model.token_mixers if isinstance(mixer, LatentAttention)]
    return max((indexer.top_k for indexer in indexers if indexer is not None), default=0)


def _absorbed(mixer: LatentAttention) -> int:
    """FLOPs of one query and one cached token where the up-projections are folded into query and output, as decoding does it."""
    return 2 * mixer.q_heads * (2 * mixer.kv_lora_rank + mixer.rope_dim)


def absorbed_flops(model: Model) -> int:
    """FLOPs of a decoding step for each cached token: of latents, whose heads all read one vector, more than its bytes take."""
    return sum(
        _absorbed(mixer)
        for mixer in model.token_mixers
        if isinstance(mixer, LatentAttention) and mixer.indexer is None
    )


def selected_flops(model: Model) -> int:
    """FLOPs of attention for one token over what an indexer selects, taken as full."""
    return sum(
        mixer.indexer.top_k * _absorbed(mixer)
        for mixer in model.token_mixers
        if isinstance(mixer, LatentAttention) and mixer.indexer is not None
    )


def _content_bytes(group: CacheGroup) -> int:
    return group.content_bytes * max(group.constant_blocks, 1)


def pair_flops(model: Model, longest: int | None = None) -> Iterator[int]:
    """FLOPs of attention for one query and one key, a layer at a time; layers with a window shorter than `longest`, whose pairs are
    bounded, count none, and of sparse attention the indexer's alone."""
    for mixer in model.token_mixers:
        span = _span(mixer)
        if span is not None and (longest is None or span < longest):
            continue
        if isinstance(mixer, FullAttention):
            yield 2 * mixer.q_heads * (mixer.head_dim + mixer.v_head_dim)
        elif isinstance(mixer, LatentAttention):
            if mixer.indexer is not None:
                yield 2 * mixer.indexer.heads * mixer.indexer.head_dim
            else:
                yield 2 * mixer.q_heads * (mixer.nope_dim + mixer.rope_dim + mixer.v_head_dim)
