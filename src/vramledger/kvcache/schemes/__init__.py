"""Ways to hand out a cache's memory, side by side for the same requests: blocks, pages of virtual memory, whole
lengths. Means are exact over the given lengths; bytes are one rank's."""

from collections.abc import Iterable

from vramledger.errors import FlagError
from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.schemes.allocation import Allocation, Waste
from vramledger.kvcache.schemes.contiguous import contiguous
from vramledger.kvcache.schemes.kvcached import PAGE_STEP, kvcached
from vramledger.kvcache.schemes.paged import paged
from vramledger.kvcache.schemes.vattention import PAGE_SIZES, vattention
from vramledger.kvcache.shape import CacheShape

__all__ = [
    "DEFAULT_PAGES",
    "Allocation",
    "Waste",
    "allocations",
    "contiguous",
    "kvcached",
    "paged",
    "vattention",
]

DEFAULT_PAGES = (PAGE_SIZES[0], PAGE_STEP)


def allocations(
    shape: CacheShape, lengths: Lengths, requests: int, page_sizes: Iterable[int] = DEFAULT_PAGES
) -> tuple[Allocation, ...]:
    """All schemes for the same requests, the engine's own first; those with pages once for each size they can have.

    Raises FlagError for a size that none of them can have.
    """
    found = [paged(shape, lengths, requests)]
    sizes = sorted(set(page_sizes))
    for size in sizes:
        if size not in PAGE_SIZES and (size < PAGE_STEP or size % PAGE_STEP):
            raise FlagError(
                f"--vmm-page {size} is neither 64, 128 or 256 KiB nor whole 2 MiB",
                flag="vmm_page",
                value=size,
            )
    found += [vattention(shape, lengths, requests, size) for size in sizes if size in PAGE_SIZES]
    found += [kvcached(shape, lengths, requests, size) for size in sizes if size % PAGE_STEP == 0]
    return (*found, contiguous(shape, lengths, requests))
