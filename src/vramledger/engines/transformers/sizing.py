"""What a cache of so many tokens costs beside itself, and how many fit into given bytes.

Source: transformers generation/continuous_batching/cache.py (`PagedAttentionMemoryHandler`) of each release.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from vramledger.engines.transformers.settings import Settings
from vramledger.ledger import Owner
from vramledger.units import ceil_div


class CacheGroup(Struct, frozen=True, kw_only=True):
    """Layers whose pages are handed out together. A block has one page of each of them; `blocks_per_unit` blocks
    make one unit of what the pool hands out. `window` is in tokens, 0 for none."""

    kind: str
    num_layers: int
    page_bytes: int
    page_tokens: int
    window: int
    blocks_per_unit: int

    @property
    def block_bytes(self) -> int:
        return self.page_bytes * self.num_layers

    def blocks(self, tokens: int) -> int:
        """Blocks a request of so many tokens holds."""
        return ceil_div(min(tokens, self.window) if self.window else tokens, self.page_tokens)


class Reserve(Struct, frozen=True, kw_only=True):
    """Bytes that the handler sets aside beside the cache."""

    owner: Owner
    name: str
    bytes: int
    formula: str


class Solution(Struct, frozen=True, kw_only=True):
    """What the handler settles on. `units` may come out as 0 or less, `footprint_bytes` above `available_bytes`:
    the library raises in both cases."""

    available_bytes: int
    batch_tokens: int
    units: int
    footprint_bytes: int

    @property
    def fits(self) -> bool:
        return self.units > 0 and self.batch_tokens > 0 and self.footprint_bytes <= self.available_bytes


def settled(
    available_bytes: int, batch_tokens: int, units: int, footprint: Callable[[int, int], int]
) -> Solution:
    """What comes of the equations. Where nothing is left for a batch they end below 0: no token then."""
    batch_tokens = max(batch_tokens, 0)
    return Solution(
        available_bytes=available_bytes,
        batch_tokens=batch_tokens,
        units=units,
        footprint_bytes=footprint(batch_tokens, units),
    )


def share_of(free_bytes: int, settings: Settings) -> int:
    """int(free x max_memory_percent), in the library's own floating point."""
    return int(free_bytes * settings.memory_percent)


def units_for(groups: tuple[CacheGroup, ...], tokens: int, requests: int) -> int:
    """Units that `requests` requests of `tokens` tokens hold: blocks of one unit serve several of them."""
    return sum(ceil_div(group.blocks(tokens) * requests, group.blocks_per_unit) for group in groups)


def requests_within(groups: tuple[CacheGroup, ...], tokens: int, units: int, most: int = 1 << 40) -> int:
    """The largest number of such requests that `units` units hold."""
    return _largest(lambda count: units_for(groups, tokens, count) <= units, most)


def longest_within(groups: tuple[CacheGroup, ...], units: int, most: int) -> int:
    """The longest context, at most `most` tokens, of which one request fits into `units` units."""
    return _largest(lambda tokens: units_for(groups, tokens, 1) <= units, most)


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` for which `holds`, which once false stays so; 0 where none does."""
    low, high = 0, max(most, 0)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
