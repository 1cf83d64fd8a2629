"""5.13 to 5.17: a batch of 8192 tokens and the blocks that two activation peaks leave.

Source: transformers 5.13 to 5.17 generation/continuous_batching/cache.py (`PagedAttentionMemoryHandler`).
"""

from __future__ import annotations

from math import floor, inf, sqrt

from vramledger.engines.transformers.grouped import FP32, INT32, INT64, Coefficients, GroupedCache, reserve
from vramledger.engines.transformers.sizing import Reserve, Solution, settled
from vramledger.ledger import Owner

BATCH_TOKENS, SMALLEST_BATCH = 8192, 256
FILL = 0.1


class PolynomialRules(GroupedCache, frozen=True, kw_only=True):
    """5.13 to 5.17: two activation peaks, each solved for alone; the batch is 8192 tokens, but at most what 10 % of
    the cache would hold and at least 256."""

    @property
    def io_bytes_per_token(self) -> int:
        rows = 2 if self.settings.flags.return_logprobs else 1
        tables = self.num_groups * self.settings.blocks_per_request * INT32
        return self.settings.io_sets * ((7 + rows) * INT32 + tables + 2 * self.num_groups * INT64)

    @property
    def logit_row_bytes(self) -> int:
        return self.shape.hidden_size * self.settings.element_bytes + self.shape.vocab_size * FP32

    @property
    def attention_bytes_per_token(self) -> int:
        width = self.shape.head_dim * (self.shape.heads + 2 * self.shape.kv_heads)
        return self.settings.element_bytes * (self.shape.hidden_size + width)

    @property
    def read_bytes_per_token(self) -> int:
        """Keys and values of one layer copied out of the cache, for one cached token."""
        return 2 * self.shape.head_dim * self.shape.kv_heads * self.settings.element_bytes

    @property
    def peaks(self) -> tuple[Coefficients, Coefficients]:
        """At the head and at the attention."""
        masks = self.settings.io_sets * self.masks * self.settings.element_bytes
        indices = self.settings.io_sets * self.num_groups * INT64
        cached, batch = self.cached_bytes_per_token + indices, self.io_bytes_per_token
        return (
            Coefficients(n=cached, m=batch + self.logit_row_bytes, nm=masks, mm=masks),
            Coefficients(
                n=cached + self.read_bytes_per_token,
                m=batch + self.attention_bytes_per_token,
                nm=masks,
                mm=masks,
            ),
        )

    def solve(self, available_bytes: int) -> Solution:
        flags = self.settings.flags
        batch, blocks = flags.max_batch_tokens, flags.num_blocks
        if batch is None and blocks is None:
            limit = min(self._filled(peak, available_bytes) for peak in self.peaks)
            batch = max(min(BATCH_TOKENS, limit), SMALLEST_BATCH)
        if blocks is None and batch is not None:
            blocks = min(self._blocks(peak, available_bytes, batch) for peak in self.peaks)
        elif batch is None and blocks is not None:
            batch = min(self._batch(peak, available_bytes, blocks) for peak in self.peaks)
        assert blocks is not None
        assert batch is not None
        return settled(available_bytes, batch, blocks, self.footprint)

    def _filled(self, peak: Coefficients, available_bytes: int) -> int:
        """Batch tokens where a batch is a tenth of the cache."""
        cached = _root(peak.nm * FILL + peak.mm * FILL**2, peak.n + peak.m * FILL, -available_bytes)
        return int(cached * FILL)

    def _blocks(self, peak: Coefficients, available_bytes: int, batch: int) -> int:
        left = available_bytes - peak.m * batch - peak.mm * batch**2
        return floor(left / (peak.n + peak.nm * batch)) // self.settings.page_tokens

    def _batch(self, peak: Coefficients, available_bytes: int, blocks: int) -> int:
        cached = blocks * self.settings.page_tokens
        return _root(peak.mm, peak.m + peak.nm * cached, peak.n * cached - available_bytes)

    def footprint(self, batch_tokens: int, units: int) -> int:
        return max(peak.at(units * self.settings.page_tokens, batch_tokens) for peak in self.peaks)

    def reserves(self, batch_tokens: int, units: int) -> tuple[Reserve, ...]:
        """The larger peak without the blocks themselves, by what it is for."""
        cached = units * self.settings.page_tokens
        index = self.settings.io_sets * self.num_groups * INT64
        mask = self.peaks[0].nm * batch_tokens * (cached + batch_tokens)
        head = batch_tokens * self.logit_row_bytes
        attention = batch_tokens * self.attention_bytes_per_token + cached * self.read_bytes_per_token
        name, size = (
            ("logits of a full batch", head)
            if head >= attention
            else ("attention of a full batch", attention)
        )
        return (
            reserve(
                Owner.WORKSPACE, "inputs, outputs and write indices", batch_tokens * self.io_bytes_per_token,
                f"{batch_tokens} tokens x {self.io_bytes_per_token} B, {self.settings.io_sets} set(s)",
            ),
            reserve(Owner.WORKSPACE, "read indices", cached * index, f"{cached} cached tokens x {index} B"),
            reserve(
                Owner.WORKSPACE, "attention masks", mask,
                f"{self.settings.io_sets * self.masks} x {batch_tokens} x ({cached} + {batch_tokens})",
            ),
            reserve(Owner.ACTIVATION, name, size, f"max(head {head}, attention {attention}) B"),
        )  # fmt: skip


def _root(squared: float, linear: float, constant: float) -> int:
    """Largest root of squared x² + linear x + constant, rounded down; negative where there is none above 0."""
    if squared == 0:
        return int(-constant / linear)
    discriminant = linear**2 - 4 * squared * constant
    if discriminant < 0:
        return -1
    found = (-linear + sqrt(discriminant)) / (2 * squared)
    return floor(found) if found < inf else 0
