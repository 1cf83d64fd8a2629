"""5.0 to 5.5: blocks and batch solved for together, the batch 1 % of the cache.

Source: transformers 5.0 to 5.5 generation/continuous_batching/cache.py (`PagedAttentionMemoryHandler`).
"""

from __future__ import annotations

from math import floor, sqrt

from vramledger.engines.transformers.grouped import BF16, INT32, GroupedCache, reserve
from vramledger.engines.transformers.sizing import Reserve, Solution, settled
from vramledger.ledger import Owner

BATCH_LIMIT, BLOCK_LIMIT, FILL = 256, 4096, 0.01


class PairedRules(GroupedCache, frozen=True, kw_only=True):
    """5.0 to 5.5: with neither figure given the batch is 1 % of the cache; at most 256 batch tokens and 4096 blocks.

    Activations count two bytes an element whatever the type.
    """

    @property
    def peak_bytes_per_token(self) -> int:
        return (self.shape.hidden_size + self.shape.vocab_size) * BF16

    @property
    def io_bytes_per_token(self) -> int:
        return 7 * INT32 + INT32 * self.num_groups

    @property
    def mask_bytes(self) -> int:
        """For one cached token in one batch token's row."""
        return self.masks * BF16

    def solve(self, available_bytes: int) -> Solution:
        flags = self.settings.flags
        blocks, batch = flags.num_blocks, flags.max_batch_tokens
        if blocks is None and batch is None:
            blocks, batch = self._both(available_bytes)
        elif blocks is None and batch is not None:
            blocks = self._blocks(available_bytes, batch)
        elif batch is None and blocks is not None:
            batch = self._batch(available_bytes, blocks)
        assert blocks is not None
        assert batch is not None
        return settled(available_bytes, batch, blocks, self.footprint)

    @property
    def _per_cached(self) -> int:
        """Twice what a read index costs is counted, and four bytes are taken (`2 * num_groups` elements of a pair)."""
        return self.cached_bytes_per_token + 4 * self.num_groups

    def _both(self, available_bytes: int) -> tuple[int, int]:
        squared = FILL * self.masks * BF16
        linear = self._per_cached + FILL * (self.peak_bytes_per_token + self.io_bytes_per_token)
        if self.masks == 0:
            cached = available_bytes / linear
        else:
            cached = (-linear + sqrt(linear**2 + 4 * squared * available_bytes)) / (2 * squared)
        blocks = min(floor(cached) // self.settings.page_tokens, BLOCK_LIMIT)
        return blocks, min(int(cached * FILL), BATCH_LIMIT)

    def _batch(self, available_bytes: int, blocks: int) -> int:
        cached = blocks * self.settings.page_tokens
        left = available_bytes - cached * self._per_cached
        cost = BF16 * cached * self.masks + self.peak_bytes_per_token + self.io_bytes_per_token
        return min(floor(left / cost), BATCH_LIMIT)

    def _blocks(self, available_bytes: int, batch: int) -> int:
        """The library divides by one mask more than there is."""
        left = available_bytes - batch * (self.peak_bytes_per_token + self.io_bytes_per_token)
        cost = self._per_cached + batch * BF16 * (self.masks + 1)
        return min(floor(left / cost) // self.settings.page_tokens, BLOCK_LIMIT)

    def footprint(self, batch_tokens: int, units: int) -> int:
        """The library's check: the read index enters with four bytes a cached token and group."""
        cached = units * self.settings.page_tokens
        per_batch = self.peak_bytes_per_token + 7 * INT32 + 2 * self.num_groups * INT32
        per_cached = self.cached_bytes_per_token + self.num_groups * INT32
        return per_cached * cached + per_batch * batch_tokens + self.mask_bytes * cached * batch_tokens

    def reserves(self, batch_tokens: int, units: int) -> tuple[Reserve, ...]:
        """The footprint without the blocks themselves, by what it is for."""
        cached = units * self.settings.page_tokens
        groups = self.num_groups
        return (
            reserve(
                Owner.WORKSPACE, "inputs, outputs and write indices",
                batch_tokens * (7 * INT32 + 2 * groups * INT32), f"{batch_tokens} tokens, {groups} group(s)",
            ),
            reserve(
                Owner.WORKSPACE, "read indices", cached * groups * INT32, f"{cached} cached tokens x {groups} x 4 B"
            ),
            reserve(
                Owner.WORKSPACE, "attention masks", self.mask_bytes * cached * batch_tokens,
                f"{self.masks} x {batch_tokens} x {cached} x 2 B",
            ),
            reserve(
                Owner.ACTIVATION, "logits of a full batch", batch_tokens * self.peak_bytes_per_token,
                f"{batch_tokens} tokens x ({self.shape.hidden_size} + {self.shape.vocab_size}) x 2 B",
            ),
        )  # fmt: skip
