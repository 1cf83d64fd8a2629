"""vAttention: contiguous addresses for each request, physical pages mapped behind them as it grows."""

from __future__ import annotations

from fractions import Fraction

from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.means import final_pages, running_pages, running_tokens
from vramledger.kvcache.schemes.allocation import (
    Allocation,
    Waste,
    constant_bytes,
    page_name,
    used_bytes,
    whole,
)
from vramledger.kvcache.shape import CacheGroup, CachePart, CacheShape
from vramledger.kvcache.units import ALL
from vramledger.ledger import ByteRange
from vramledger.units import KIB, MIB, ceil_div, round_up

STEPS_AHEAD = 9
DRIVER_PAGE = 2 * MIB
PAGE_SIZES = (64 * KIB, 128 * KIB, 256 * KIB, DRIVER_PAGE)
_SOURCE = "arXiv 2405.04437; vattention/utils.h, vattention/vattention.cu"


def vattention(shape: CacheShape, lengths: Lengths, requests: int, page_bytes: int) -> Allocation:
    """A span of addresses for each request, tensor and layer, as long as the longest context; pages are mapped one
    for every tensor of every layer at a time, up to nine steps before they are needed.

    Pages of an ended request stay mapped until somebody wants them, and physical memory is allocated at start for
    the whole pool (utils.h: need_new_page_async, deferred_reclaim; vattention.cu: do_kvcache_memory_management).
    Pages below 2 MiB need its own driver. The code knows no windows: tokens that left one stay.
    """
    scheme = f"vattention {page_name(page_bytes)}"
    used = used_bytes(shape, lengths)
    now = final = constant_bytes(shape)
    soon, stale = now, Fraction(0)
    virtual = unit_bytes = 0
    unit_tokens: list[int] = []
    for group in shape.growing:
        stale += group.token_bytes * (running_tokens(lengths, ALL) - running_tokens(lengths, group.kept))
        for part in group.parts:
            tokens = _tokens(group, part, page_bytes)
            if not tokens:
                why = f"a token of one layer is larger than a page of {page_name(page_bytes)}"
                return Allocation(scheme=scheme, source=_SOURCE, requests=requests, refusal=why)
            mapped, most = page_bytes * part.tensors * part.layers, ceil_div(shape.max_len, tokens)
            now += mapped * running_pages(lengths, tokens, 0, most)
            soon += mapped * running_pages(lengths, tokens, STEPS_AHEAD, most)
            final += mapped * final_pages(lengths, tokens, STEPS_AHEAD, most)
            span = ceil_div(shape.max_len * part.page_bytes, part.tensors * group.block_size)
            virtual += requests * round_up(span, page_bytes) * part.tensors * part.layers
            unit_bytes += mapped
            unit_tokens.append(tokens)
    needed, held = whole(now * requests), whole(soon * requests)
    size, left = whole(used * requests), whole(stale * requests)
    return Allocation(
        scheme=scheme,
        source=_SOURCE,
        requests=requests,
        unit_bytes=unit_bytes,
        unit_tokens=min(unit_tokens, default=0),
        used_bytes=size,
        held_bytes=ByteRange(needed, held, held),
        final_bytes=whole(final * requests),
        waste=Waste(rounding_bytes=needed - size - left, ahead_bytes=held - needed, stale_bytes=left),
        virtual_bytes=virtual,
        idle_bytes=shape.pool_bytes,
        fit_running=int(shape.pool_bytes / soon) if soon else 0,
        fit_final=int(shape.pool_bytes / final) if final else 0,
        notes=tuple(_notes(shape, page_bytes)),
    )


def _tokens(group: CacheGroup, part: CachePart, page_bytes: int) -> int:
    """Whole tokens of one tensor of one layer in a page."""
    return page_bytes * part.tensors * group.block_size // part.page_bytes


def _notes(shape: CacheShape, page_bytes: int) -> list[str]:
    notes = ["pages of ended requests stay mapped until they are wanted; the device gets nothing back"]
    if page_bytes != DRIVER_PAGE:
        notes.append("needs vAttention's own driver")
    if any(part.tensors == 1 for group in shape.growing for part in group.parts):
        notes.append(
            "the released code has keys and values only; a latent in one tensor is this rule's reading"
        )
    return notes
