"""5.6 to 5.12: the polynomial with all its terms, solved for a batch of 1 % of the cache, both figures capped.

Source: transformers 5.6 to 5.12 generation/continuous_batching/cache.py (`PagedAttentionMemoryHandler`).
"""

from __future__ import annotations

from math import floor, sqrt

from vramledger.engines.transformers.grouped import BF16, INT32, INT64, Coefficients, GroupedCache, reserve
from vramledger.engines.transformers.sizing import Reserve, Solution, settled
from vramledger.ledger import Owner

BLOCK_LIMIT, FILL = 4096, 0.01
FIRST_BATCH_LIMIT, BATCH_LIMIT = 256, 1024
TWO_PEAKS_SINCE = 7


class CappedRules(GroupedCache, frozen=True, kw_only=True):
    """At most 256 batch tokens in 5.6 and 1024 after, 4096 blocks in both. Activations count two bytes an element
    whatever the type; the handler counts the KV heads that a rank caches."""

    @property
    def has_two_peaks(self) -> bool:
        return self.settings.version.since(TWO_PEAKS_SINCE)

    @property
    def batch_limit(self) -> int:
        return BATCH_LIMIT if self.has_two_peaks else FIRST_BATCH_LIMIT

    @property
    def page_elements(self) -> int:
        """Elements of the keys of one token in one layer."""
        return self.shape.head_dim * self.kv_heads_held

    @property
    def io_bytes_per_token(self) -> int:
        rows = 2 if self.settings.flags.return_logprobs else 1
        tables = self.num_groups * self.settings.blocks_per_request * INT32
        return self.settings.io_sets * ((7 + rows) * INT32 + tables + 2 * self.num_groups * INT64)

    @property
    def peaks(self) -> tuple[Coefficients, ...]:
        """At the head, and since 5.7 at the attention."""
        hidden, vocab = self.shape.hidden_size, self.shape.vocab_size
        if not self.has_two_peaks:
            return (self._peak(0, hidden + vocab),)
        page = self.page_elements
        queries = self.shape.heads * self.shape.head_dim
        return (self._peak(0, hidden + 2 * vocab), self._peak(2 * page, hidden + queries + 2 * page))

    def _peak(self, cached_elements: int, batch_elements: int) -> Coefficients:
        masks = self.settings.io_sets * self.masks * BF16
        indices = self.settings.io_sets * self.num_groups * INT64
        held = 2 * self.group_size * self.page_elements * self.settings.element_bytes
        return Coefficients(
            n=held + indices + cached_elements * BF16,
            m=self.io_bytes_per_token + batch_elements * BF16,
            nm=masks,
            mm=masks,
        )

    def solve(self, available_bytes: int) -> Solution:
        """The fewest blocks and batch tokens that any peak allows."""
        found = [self._at(peak, available_bytes) for peak in self.peaks]
        batch, blocks = min(batch for batch, _ in found), min(blocks for _, blocks in found)
        return settled(available_bytes, batch, blocks, self.footprint)

    def _at(self, peak: Coefficients, available_bytes: int) -> tuple[int, int]:
        batch, blocks = self.settings.flags.max_batch_tokens, self.settings.flags.num_blocks
        size = self.settings.page_tokens
        if batch is None and blocks is None:
            cached = _root(peak.nm * FILL + peak.mm * FILL**2, peak.n + peak.m * FILL, -available_bytes)
            batch = int(cached * FILL)
            is_capped = batch > self.batch_limit
            batch = min(batch, self.batch_limit)
            if not (is_capped and self.has_two_peaks):
                blocks = min(floor(cached) // size, BLOCK_LIMIT)
        if blocks is None:
            assert batch is not None
            left = available_bytes - peak.m * batch - peak.mm * batch**2
            blocks = min(floor(left / (peak.n + peak.nm * batch)) // size, BLOCK_LIMIT)
        elif batch is None:
            cached_tokens = blocks * size
            most = _root(peak.mm, peak.m + peak.nm * cached_tokens, peak.n * cached_tokens - available_bytes)
            batch = min(floor(most), self.batch_limit)
        return batch, blocks

    def footprint(self, batch_tokens: int, units: int) -> int:
        return max(peak.at(units * self.settings.page_tokens, batch_tokens) for peak in self.peaks)

    def reserves(self, batch_tokens: int, units: int) -> tuple[Reserve, ...]:
        """The larger peak without the blocks themselves, by what it is for."""
        cached = units * self.settings.page_tokens
        index = self.settings.io_sets * self.num_groups * INT64
        mask = self.peaks[0].nm * batch_tokens * (cached + batch_tokens)
        held = cached * 2 * self.group_size * self.page_elements * self.settings.element_bytes
        inputs = batch_tokens * self.io_bytes_per_token
        activation = self.footprint(batch_tokens, units) - held - cached * index - inputs - mask
        return (
            reserve(
                Owner.WORKSPACE, "inputs, outputs and write indices", inputs,
                f"{batch_tokens} tokens x {self.io_bytes_per_token} B, {self.settings.io_sets} set(s)",
            ),
            reserve(Owner.WORKSPACE, "read indices", cached * index, f"{cached} cached tokens x {index} B"),
            reserve(
                Owner.WORKSPACE, "attention masks", mask,
                f"{self.settings.io_sets * self.masks} x {batch_tokens} x ({cached} + {batch_tokens}) x 2 B",
            ),
            reserve(
                Owner.ACTIVATION, "activations of a full batch", activation,
                f"the larger of {len(self.peaks)} peak(s) at {batch_tokens} batch and {cached} cached tokens",
            ),
        )  # fmt: skip


def _root(squared: float, linear: float, constant: float) -> float:
    """Largest root of squared x² + linear x + constant; negative where there is none above 0."""
    if squared == 0:
        return -constant / linear
    discriminant = linear**2 - 4 * squared * constant
    if discriminant < 0:
        return -1.0
    return (-linear + sqrt(discriminant)) / (2 * squared)
