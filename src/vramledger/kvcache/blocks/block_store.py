"""The blocks themselves: who refers to them, what is in them, and which are free."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.kvcache.blocks.counters import BlockCounters
from vramledger.kvcache.blocks.eviction import Eviction
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.kvcache.blocks.prefix_index import PrefixIndex

NULL = -1
"""The place of a block that was given back, or was never needed, in a block table."""


class BlockStore:
    """Every block of a pool by number; sums are kept as blocks change hands.

    A block is held (references > 0), or free and then in `order`. `size_tokens` is what it has room for (0 for a state),
    `fill_tokens` what is in it. `leads` marks those that stand for a sequence's tokens where several groups keep them. `filled` marks content that is complete, findable or not.
    """

    def __init__(self, layout: PoolLayout, eviction: Eviction) -> None:
        self.counters = BlockCounters()
        self.order = eviction(range(layout.reserved_blocks, layout.num_blocks))
        self.index = PrefixIndex()
        # By block number, as far as blocks were ever given out.
        self.references: list[int] = []
        self.filled = bytearray()
        self.fill_tokens: list[int] = []
        self.size_tokens: list[int] = []
        self.leads = bytearray()
        self.cached_blocks = 0
        self.held_fill_tokens = 0
        self.held_size_tokens = 0
        self.held_lead_tokens = 0
        self._uncached_first = layout.uncached_first

    def take(self, size_tokens: int, *, leads: bool = False) -> int:
        """A block for new content; what it held is lost."""
        block = self.order.take()
        if block >= len(self.references):
            more = block + 1 - len(self.references)
            self.references += [0] * more
            self.filled += bytes(more)
            self.fill_tokens += [0] * more
            self.size_tokens += [0] * more
            self.leads += bytes(more)
        elif self.index.drop(block):
            self.cached_blocks -= 1
            self.counters.evicted_blocks += 1
            self.counters.evicted_tokens += self.fill_tokens[block]
        self.counters.taken_blocks += 1
        self.references[block] = 1
        self.filled[block] = 0
        self.fill_tokens[block] = 0
        self.size_tokens[block] = size_tokens
        self.leads[block] = leads
        self.held_size_tokens += size_tokens
        return block

    def hold(self, block: int) -> None:
        """One more sequence refers to the block."""
        if not self.references[block]:
            self.order.withdraw(block)
            self.cached_blocks -= self.index.holds(block)
            self.held_fill_tokens += self.fill_tokens[block]
            self.held_size_tokens += self.size_tokens[block]
            if self.leads[block]:
                self.held_lead_tokens += self.fill_tokens[block]
        self.references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One sequence less refers to each of them; those nobody refers to become free, the first to be lost first."""
        kept: list[int] = []
        empty: list[int] = []
        for block in blocks:
            if block == NULL:
                continue
            self.references[block] -= 1
            if self.references[block]:
                continue
            self.held_fill_tokens -= self.fill_tokens[block]
            self.held_size_tokens -= self.size_tokens[block]
            if self.leads[block]:
                self.held_lead_tokens -= self.fill_tokens[block]
            self.cached_blocks += self.index.holds(block)
            (kept if self.filled[block] or not self._uncached_first else empty).append(block)
        self.order.give_back_empty(empty)
        self.order.give_back(kept)

    def fill(self, block: int, tokens: int) -> None:
        """A held block has at least these tokens in it now."""
        more = tokens - self.fill_tokens[block]
        if more > 0:
            self.held_fill_tokens += more
            if self.leads[block]:
                self.held_lead_tokens += more
            self.fill_tokens[block] = tokens

    def complete(self, block: int, group: int, boundary: int, key: int | None) -> None:
        """A held block's content will not change any more; with a key it can be found."""
        if not self.filled[block]:
            self.filled[block] = 1
            if key is not None:
                self.index.add(block, group, boundary, key)

    def copy(self, block: int) -> int:
        """A block of its own, with the same content, for one of those who refer to `block`."""
        copied = self.take(self.size_tokens[block], leads=bool(self.leads[block]))
        self.fill(copied, self.fill_tokens[block])
        self.references[block] -= 1
        self.counters.copied_blocks += 1
        self.counters.copied_tokens += self.fill_tokens[block]
        return copied

    def forget(self, block: int) -> None:
        """What is in the block cannot be found any more."""
        if self.index.drop(block) and not self.references[block]:
            self.cached_blocks -= 1
        self.filled[block] = 0
