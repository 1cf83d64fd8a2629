"""5.18 and newer: one flat cache cut into sectors; the batch is fixed first, the rest becomes sectors.

Source: transformers 5.18 to 5.23 generation/continuous_batching/cache.py.
"""

from __future__ import annotations

from math import lcm

from msgspec import Struct

from vramledger.engines.transformers.geometry import Geometry
from vramledger.engines.transformers.settings import Settings
from vramledger.engines.transformers.sizing import CacheGroup, Reserve, Solution, settled
from vramledger.ledger import Owner
from vramledger.units import ceil_div

BATCH_TOKENS = 8192
ALIGNMENT = 128
TRASH_SECTORS = 2
_INT32, _INT64, _FP32 = 4, 8, 4
_BULK_ROWS = 7


class SectorRules(Struct, frozen=True, kw_only=True):
    """The costs of one model under one configuration, in bytes. `kv_heads_held` are those of one rank's cache; the
    handler itself counts activations with all heads of the model. `slices_logits` is whether the model computes
    logits only for the rows that are asked for."""

    shape: Geometry
    settings: Settings
    kv_heads_held: int
    slices_logits: bool = True

    @property
    def page_bytes(self) -> int:
        """Keys and values of one layer for one page of tokens."""
        elements = 2 * self.kv_heads_held * self.shape.head_dim * self.settings.page_tokens
        return elements * self.settings.element_bytes

    @property
    def unit_bytes(self) -> int:
        """A sector: whole blocks of every kind of attention, aligned."""
        return lcm(*(self.page_bytes * kind.num_layers for kind in self.shape.kinds), ALIGNMENT)

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        sector, page = self.unit_bytes, self.page_bytes
        return tuple(
            CacheGroup(
                kind=kind.name,
                num_layers=kind.num_layers,
                page_bytes=page,
                page_tokens=self.settings.page_tokens,
                window=kind.window,
                blocks_per_unit=sector // (page * kind.num_layers),
            )
            for kind in self.shape.kinds
        )

    @property
    def unit_tokens(self) -> int:
        """Tokens of a sector that serves the kind of attention with the smallest blocks."""
        return max(group.blocks_per_unit * group.page_tokens for group in self.groups)

    @property
    def kv_heads_read(self) -> int:
        """Heads of keys and values alive when the cache is read: as stored for flash, repeated otherwise."""
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        return 2 * kv_heads if self.settings.is_flash else 2 * heads + kv_heads

    @property
    def masks(self) -> int:
        if self.settings.is_flash:
            return 0
        return 2 if self.shape.has_windows else 1

    @property
    def logit_row_bytes(self) -> int:
        return self.shape.hidden_size * self.settings.element_bytes + self.shape.vocab_size * _FP32

    @property
    def activation_bytes_per_token(self) -> int:
        shape = self.shape
        width = shape.hidden_size + shape.head_dim * (shape.heads + 2 * shape.kv_heads + self.kv_heads_read)
        attention = self.settings.element_bytes * width
        return attention if self.slices_logits else max(attention, self.logit_row_bytes)

    @property
    def io_bytes_per_token(self) -> int:
        rows = 2 if self.settings.flags.return_logprobs else 1
        count = len(self.shape.kinds)
        tables = _INT32 * count * self.settings.blocks_per_request
        return self.settings.io_sets * (_INT32 * (_BULK_ROWS + rows) + tables + 2 * _INT64 * count)

    @property
    def batch_bytes_per_token(self) -> int:
        return self.activation_bytes_per_token + self.io_bytes_per_token

    @property
    def read_bytes_per_token(self) -> int:
        """Keys and values copied out of the cache at the attention peak, for one cached token."""
        return self.kv_heads_read * self.shape.head_dim * self.settings.element_bytes

    @property
    def index_bytes_per_token(self) -> int:
        return self.settings.io_sets * len(self.shape.kinds) * _INT64

    @property
    def cost_of_unit(self) -> int:
        return self.unit_bytes + self.unit_tokens * (self.read_bytes_per_token + self.index_bytes_per_token)

    @property
    def logits_bytes(self) -> int:
        return self.settings.max_requests * self.logit_row_bytes if self.slices_logits else 0

    @property
    def extra_units(self) -> int:
        return TRASH_SECTORS

    @property
    def fixed_bytes(self) -> int:
        return TRASH_SECTORS * self.unit_bytes + self.logits_bytes

    def mask_bytes(self, batch_tokens: int, units: int) -> int:
        """Masks of [batch, cache + batch] elements."""
        elements = batch_tokens * (units * self.unit_tokens + batch_tokens)
        return self.settings.io_sets * self.masks * self.settings.element_bytes * elements

    @property
    def whole_block_bytes(self) -> int:
        """One page in every layer of the model."""
        return self.shape.num_layers * self.page_bytes

    def solve(self, available_bytes: int) -> Solution:
        """Sectors within `available_bytes`, or those that num_blocks asks for."""
        flags = self.settings.flags
        batch = flags.max_batch_tokens or BATCH_TOKENS
        if flags.num_blocks is not None:
            units = max(1, ceil_div(flags.num_blocks * self.whole_block_bytes, self.unit_bytes))
        else:
            left = available_bytes - self.fixed_bytes - batch * self.batch_bytes_per_token
            units = left // self.cost_of_unit
            mask = self.mask_bytes(batch, units)
            growth = self.mask_bytes(batch, units + 1) - mask
            units -= ceil_div(mask, self.cost_of_unit + growth)
        return settled(available_bytes, batch, units, self.footprint)

    def footprint(self, batch_tokens: int, units: int) -> int:
        """Everything the handler counts for a batch of so many tokens and so many sectors."""
        grown = batch_tokens * self.batch_bytes_per_token + units * self.cost_of_unit
        return self.fixed_bytes + grown + self.mask_bytes(batch_tokens, units)

    def reserves(self, batch_tokens: int, units: int) -> tuple[Reserve, ...]:
        """The footprint without the sectors themselves, by what it is for."""
        cached = units * self.unit_tokens
        return (
            _reserve(
                Owner.WORKSPACE, "inputs, outputs and write indices", batch_tokens * self.io_bytes_per_token,
                f"{batch_tokens} tokens x {self.io_bytes_per_token} B, {self.settings.io_sets} set(s)",
            ),
            _reserve(
                Owner.WORKSPACE, "read indices", cached * self.index_bytes_per_token,
                f"{cached} cached tokens x {self.index_bytes_per_token} B",
            ),
            _reserve(
                Owner.WORKSPACE, "attention masks", self.mask_bytes(batch_tokens, units),
                f"{self.settings.io_sets * self.masks} x {batch_tokens} x ({cached} + {batch_tokens}) x "
                f"{self.settings.element_bytes} B",
            ),
            _reserve(
                Owner.ACTIVATION, "attention of a full batch", batch_tokens * self.activation_bytes_per_token,
                f"{batch_tokens} tokens x {self.activation_bytes_per_token} B",
            ),
            _reserve(
                Owner.ACTIVATION, "logits of a batch's requests", self.logits_bytes,
                f"{self.settings.max_requests} rows x {self.logit_row_bytes} B",
            ),
            _reserve(
                Owner.ACTIVATION, "keys and values read back", cached * self.read_bytes_per_token,
                f"{cached} cached tokens x {self.kv_heads_read} heads x {self.shape.head_dim} x "
                f"{self.settings.element_bytes} B",
            ),
        )  # fmt: skip


def _reserve(owner: Owner, name: str, size_bytes: int, formula: str) -> Reserve:
    return Reserve(owner=owner, name=name, bytes=size_bytes, formula=formula)
