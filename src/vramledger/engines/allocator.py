"""PyTorch's caching allocator: how many bytes stay with a tensor of a given size.

Source: torch c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split): requests are
rounded to 512 bytes; up to 1 MiB they come from 2 MiB segments, below 10 MiB from 20 MiB segments, above from
segments of the request rounded to 2 MiB. A free block is split only where more than 1 MiB would be left over
(512 bytes in the small pool); otherwise the rest stays with the tensor and counts as allocated.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import lru_cache

from msgspec import Struct

from vramledger.units import MIB, round_up

MIN_BLOCK = 512
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
MIN_LARGE = 10 * MIB
ROUND_LARGE = 2 * MIB


class Slack(Struct, frozen=True, kw_only=True):
    """Bytes beyond what was asked for: `stranded_bytes` counts as allocated, `idle_bytes` is reserved and free."""

    stranded_bytes: int
    idle_bytes: int

    def __add__(self, other: Slack) -> Slack:
        return Slack(
            stranded_bytes=self.stranded_bytes + other.stranded_bytes,
            idle_bytes=self.idle_bytes + other.idle_bytes,
        )


@lru_cache(maxsize=4096)
def allocation_slack(sizes: tuple[int, ...], repeats: int, max_split_bytes: int = 0) -> Slack:
    """What allocating `sizes` in order, the whole sequence `repeats` times, takes beyond their sum.

    `max_split_bytes` is the allocator's `max_split_size_mb` in bytes (0: none): blocks of that size or more
    are never split, so a segment's whole rest stays with its tensor.
    """
    small: list[int] = []
    large: list[int] = []
    stranded = 0
    for _ in range(repeats):
        for size in sizes:
            wanted = max(round_up(size, MIN_BLOCK), MIN_BLOCK)
            pool, least = (small, MIN_BLOCK) if wanted <= SMALL else (large, SMALL + 1)
            place = bisect_left(pool, wanted)
            oversize = bool(max_split_bytes) and wanted >= max_split_bytes
            if place < len(pool) and not (
                max_split_bytes and not oversize and pool[place] >= max_split_bytes
            ):
                block = pool.pop(place)
            else:
                block = segment_bytes(wanted)
            rest = block - wanted
            if rest >= least and not oversize:
                insort(pool, rest)
                rest = 0
            stranded += wanted + rest - size
    return Slack(stranded_bytes=stranded, idle_bytes=sum(small) + sum(large))


def segment_bytes(wanted: int) -> int:
    """What is taken from the driver for a rounded request that no free block serves."""
    if wanted <= SMALL:
        return SMALL_SEGMENT
    if wanted < MIN_LARGE:
        return LARGE_SEGMENT
    return round_up(wanted, ROUND_LARGE)
