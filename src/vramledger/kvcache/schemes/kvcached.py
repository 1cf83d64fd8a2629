"""kvcached: the engine's blocks, in pages that are mapped only while a block of them is in use."""

from __future__ import annotations

from fractions import Fraction

from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.schemes.allocation import (
    Allocation,
    Waste,
    blocks_of,
    page_name,
    tables_bytes,
    used_bytes,
    whole,
)
from vramledger.kvcache.shape import CachePart, CacheShape
from vramledger.ledger import ByteRange
from vramledger.units import MIB

PAGE_STEP = 2 * MIB
RESERVED_PAGES = (5, 10)
_SOURCE = "kvcached csrc/page_allocator.cpp, csrc/allocator.cpp, kvcached/kv_geometry.py"


def kvcached(shape: CacheShape, lengths: Lengths, requests: int, page_bytes: int = PAGE_STEP) -> Allocation:
    """A page number is mapped in every layer, for keys and for values; blocks that would straddle pages are left out.

    5 to 10 page numbers stay mapped in reserve, and one is what unmapped addresses read as zero. `held_bytes` is what
    the blocks fill when they lie together; at most it is the pages that were mapped with every request at its last
    length, as long as blocks are left to keep them.
    """
    running = [Fraction(0)] * len(shape.pool_parts)
    final = list(running)
    for group in shape.groups:
        for blocks, mean in zip((running, final), blocks_of(group, lengths), strict=True):
            blocks[group.pool] += mean * requests
    page = _usable_page(shape, page_bytes)
    packed = scattered = peak = page_number = 0
    share_running = share_final = Fraction(0)
    for number, parts in enumerate(shape.pool_parts):
        for part in parts:
            per_page, mapped = page // _piece(part), page * part.layers * part.tensors
            most = _pages(final[number], per_page)
            packed += mapped * _pages(running[number], per_page)
            scattered += mapped * min(most, _pages(running[number], 1))
            peak += mapped * most
            page_number += mapped
            share_running += running[number] * mapped / per_page
            share_final += final[number] * mapped / per_page
    fixed = page_number * (1 + RESERVED_PAGES[1])
    left = max(shape.pool_bytes - fixed, 0)
    used = whole(used_bytes(shape, lengths) * requests)
    return Allocation(
        scheme=f"kvcached {page_name(page)}",
        source=_SOURCE,
        requests=requests,
        unit_bytes=page_number,
        unit_tokens=min(
            (page // _piece(part) * group.block_size for group in shape.growing for part in group.parts),
            default=0,
        ),
        used_bytes=used,
        held_bytes=ByteRange(packed, packed, max(packed, scattered)),
        final_bytes=peak,
        waste=Waste(rounding_bytes=packed - used),
        fixed_bytes=fixed,
        table_bytes=tables_bytes(shape, requests),
        virtual_bytes=shape.pool_bytes,
        idle_bytes=fixed,
        fit_running=int(left * requests / share_running) if share_running else 0,
        fit_final=int(left * requests / share_final) if share_final else 0,
        notes=tuple(_notes(page, page_bytes, page_number)),
    )


def _piece(part: CachePart) -> int:
    """One block of one tensor of one layer."""
    return part.page_bytes // part.tensors


def _pages(blocks: Fraction, per_page: int) -> int:
    return -int(-blocks // per_page)


def _usable_page(shape: CacheShape, page_bytes: int) -> int:
    """The smallest size from `page_bytes` up of which every page holds a whole block (kv_geometry.py)."""
    page = page_bytes
    pieces = {_piece(part) for parts in shape.pool_parts for part in parts}
    while not all(2 * piece <= page or page % piece == 0 for piece in pieces):
        page += PAGE_STEP
    return page


def _notes(page: int, page_bytes: int, page_number: int) -> list[str]:
    low, high = (count * page_number for count in RESERVED_PAGES)
    reserve = f"{low:,} to {high:,} of its fixed bytes are pages in reserve"
    notes = [f"{reserve}; a model put to sleep and trimmed keeps {page_number:,}"]
    if page != page_bytes:
        notes.append(f"a block wants larger pages (KVCACHED_PAGE_SIZE_MB={page // MIB})")
    return notes
