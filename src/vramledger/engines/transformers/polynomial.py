"""5.0 to 5.17: blocks of equal groups of layers, and a memory polynomial in cached tokens N and batch tokens M.

    memory(N, M) = n N + m M + nm N M + mm M²

Source: transformers 5.0 to 5.17 generation/continuous_batching/cache.py (`group_layers_by_attn_type`,
`PagedAttentionMemoryHandler`).
"""

from __future__ import annotations

from math import floor, gcd, inf, sqrt

from msgspec import Struct

from vramledger.engines.transformers.geometry import Geometry
from vramledger.engines.transformers.settings import Settings
from vramledger.engines.transformers.sizing import CacheGroup, Reserve, Solution
from vramledger.ledger import Owner

TRASH_BLOCKS = 2
BATCH_TOKENS, SMALLEST_BATCH = 8192, 256
FIRST_BATCH_LIMIT, FIRST_BLOCK_LIMIT = 256, 4096
FIRST_FILL, FILL = 0.01, 0.1
_INT32, _INT64, _FP32, _BF16 = 4, 8, 4, 2


class Coefficients(Struct, frozen=True, kw_only=True):
    """Bytes a cached token (`n`), a batch token (`m`), their product and the batch squared cost."""

    n: int
    m: int
    nm: int
    mm: int

    def at(self, cached: int, batch: int) -> int:
        return self.n * cached + self.m * batch + self.nm * cached * batch + self.mm * batch * batch


class _GroupedCache(Struct, frozen=True, kw_only=True):
    """Blocks of a group of layers; all groups have the same number of layers and draw from one pool."""

    shape: Geometry
    settings: Settings
    kv_heads_held: int

    @property
    def group_size(self) -> int:
        return gcd(*(kind.num_layers for kind in self.shape.kinds))

    @property
    def num_groups(self) -> int:
        return self.shape.num_layers // self.group_size

    @property
    def page_bytes(self) -> int:
        elements = 2 * self.kv_heads_held * self.shape.head_dim * self.settings.page_tokens
        return elements * self.settings.element_bytes

    @property
    def unit_bytes(self) -> int:
        return self.page_bytes * self.group_size

    @property
    def unit_tokens(self) -> int:
        return self.settings.page_tokens

    @property
    def whole_block_bytes(self) -> int:
        return self.shape.num_layers * self.page_bytes

    @property
    def extra_units(self) -> int:
        return TRASH_BLOCKS

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        one = [
            CacheGroup(
                kind=kind.name,
                num_layers=self.group_size,
                page_bytes=self.page_bytes,
                page_tokens=self.settings.page_tokens,
                window=kind.window,
                blocks_per_unit=1,
            )
            for kind in self.shape.kinds
            for _ in range(kind.num_layers // self.group_size)
        ]
        return tuple(one)

    @property
    def masks(self) -> int:
        if self.settings.is_flash:
            return 0
        return 2 if self.shape.has_windows else 1

    @property
    def cached_bytes_per_token(self) -> int:
        """Keys and values of one cached token as the handler counts them: all KV heads of the model."""
        elements = 2 * self.group_size * self.shape.head_dim * self.shape.kv_heads
        return elements * self.settings.element_bytes


class PairedRules(_GroupedCache, frozen=True, kw_only=True):
    """5.0 to 5.5: with neither figure given the batch is 1 % of the cache; at most 256 batch tokens and 4096 blocks.

    Activations count two bytes an element whatever the type.
    """

    @property
    def peak_bytes_per_token(self) -> int:
        return (self.shape.hidden_size + self.shape.vocab_size) * _BF16

    @property
    def io_bytes_per_token(self) -> int:
        return 7 * _INT32 + _INT32 * self.num_groups

    @property
    def mask_bytes(self) -> int:
        """For one cached token in one batch token's row."""
        return self.masks * _BF16

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
        return Solution(
            available_bytes=available_bytes,
            batch_tokens=batch,
            units=blocks,
            footprint_bytes=self.footprint(batch, blocks),
        )

    @property
    def _per_cached(self) -> int:
        """Twice what a read index costs is counted, and four bytes are taken (`2 * num_groups` elements of a pair)."""
        return self.cached_bytes_per_token + 4 * self.num_groups

    def _both(self, available_bytes: int) -> tuple[int, int]:
        squared = FIRST_FILL * self.masks * _BF16
        linear = self._per_cached + FIRST_FILL * (self.peak_bytes_per_token + self.io_bytes_per_token)
        if self.masks == 0:
            cached = available_bytes / linear
        else:
            cached = (-linear + sqrt(linear**2 + 4 * squared * available_bytes)) / (2 * squared)
        blocks = min(floor(cached) // self.settings.page_tokens, FIRST_BLOCK_LIMIT)
        return blocks, min(int(cached * FIRST_FILL), FIRST_BATCH_LIMIT)

    def _batch(self, available_bytes: int, blocks: int) -> int:
        cached = blocks * self.settings.page_tokens
        left = available_bytes - cached * self._per_cached
        cost = _BF16 * cached * self.masks + self.peak_bytes_per_token + self.io_bytes_per_token
        return min(floor(left / cost), FIRST_BATCH_LIMIT)

    def _blocks(self, available_bytes: int, batch: int) -> int:
        """The library divides by one mask more than there is."""
        left = available_bytes - batch * (self.peak_bytes_per_token + self.io_bytes_per_token)
        cost = self._per_cached + batch * _BF16 * (self.masks + 1)
        return min(floor(left / cost) // self.settings.page_tokens, FIRST_BLOCK_LIMIT)

    def footprint(self, batch_tokens: int, units: int) -> int:
        """The library's check: the read index enters with four bytes a cached token and group."""
        cached = units * self.settings.page_tokens
        per_batch = self.peak_bytes_per_token + 7 * _INT32 + 2 * self.num_groups * _INT32
        per_cached = self.cached_bytes_per_token + self.num_groups * _INT32
        return per_cached * cached + per_batch * batch_tokens + self.mask_bytes * cached * batch_tokens

    def reserves(self, batch_tokens: int, units: int) -> tuple[Reserve, ...]:
        """The footprint without the blocks themselves, by what it is for."""
        cached = units * self.settings.page_tokens
        groups = self.num_groups
        return (
            _reserve(
                Owner.WORKSPACE, "inputs, outputs and write indices",
                batch_tokens * (7 * _INT32 + 2 * groups * _INT32), f"{batch_tokens} tokens, {groups} group(s)",
            ),
            _reserve(
                Owner.WORKSPACE, "read indices", cached * groups * _INT32, f"{cached} cached tokens x {groups} x 4 B"
            ),
            _reserve(
                Owner.WORKSPACE, "attention masks", self.mask_bytes * cached * batch_tokens,
                f"{self.masks} x {batch_tokens} x {cached} x 2 B",
            ),
            _reserve(
                Owner.ACTIVATION, "logits of a full batch", batch_tokens * self.peak_bytes_per_token,
                f"{batch_tokens} tokens x ({self.shape.hidden_size} + {self.shape.vocab_size}) x 2 B",
            ),
        )  # fmt: skip


class PolynomialRules(_GroupedCache, frozen=True, kw_only=True):
    """5.13 to 5.17: two activation peaks, each solved for alone; the batch is 8192 tokens, but at most what 10 % of
    the cache would hold and at least 256."""

    @property
    def io_bytes_per_token(self) -> int:
        rows = 2 if self.settings.flags.return_logprobs else 1
        tables = self.num_groups * self.settings.blocks_per_request * _INT32
        return self.settings.io_sets * ((7 + rows) * _INT32 + tables + 2 * self.num_groups * _INT64)

    @property
    def logit_row_bytes(self) -> int:
        return self.shape.hidden_size * self.settings.element_bytes + self.shape.vocab_size * _FP32

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
        indices = self.settings.io_sets * self.num_groups * _INT64
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
        return Solution(
            available_bytes=available_bytes,
            batch_tokens=batch,
            units=blocks,
            footprint_bytes=self.footprint(batch, blocks),
        )

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
        index = self.settings.io_sets * self.num_groups * _INT64
        mask = self.peaks[0].nm * batch_tokens * (cached + batch_tokens)
        head = batch_tokens * self.logit_row_bytes
        attention = batch_tokens * self.attention_bytes_per_token + cached * self.read_bytes_per_token
        name, size = (
            ("logits of a full batch", head)
            if head >= attention
            else ("attention of a full batch", attention)
        )
        return (
            _reserve(
                Owner.WORKSPACE, "inputs, outputs and write indices", batch_tokens * self.io_bytes_per_token,
                f"{batch_tokens} tokens x {self.io_bytes_per_token} B, {self.settings.io_sets} set(s)",
            ),
            _reserve(Owner.WORKSPACE, "read indices", cached * index, f"{cached} cached tokens x {index} B"),
            _reserve(
                Owner.WORKSPACE, "attention masks", mask,
                f"{self.settings.io_sets * self.masks} x {batch_tokens} x ({cached} + {batch_tokens})",
            ),
            _reserve(Owner.ACTIVATION, name, size, f"max(head {head}, attention {attention}) B"),
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


def _reserve(owner: Owner, name: str, size_bytes: int, formula: str) -> Reserve:
    return Reserve(owner=owner, name=name, bytes=size_bytes, formula=formula)
