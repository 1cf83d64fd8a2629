"""5.0 to 5.17: blocks of equal groups of layers that draw from one pool, and what a memory polynomial costs.

    memory(N, M) = n N + m M + nm N M + mm M², of N cached tokens and M batch tokens

Source: transformers 5.0 to 5.17 generation/continuous_batching/cache.py (`group_layers_by_attn_type`).
"""

from __future__ import annotations

from math import gcd

from msgspec import Struct

from vramledger.engines.transformers.geometry import Geometry
from vramledger.engines.transformers.settings import Settings
from vramledger.engines.transformers.sizing import CacheGroup, Reserve
from vramledger.ledger import Owner

TRASH_BLOCKS = 2
INT32, INT64, FP32, BF16 = 4, 8, 4, 2


class Coefficients(Struct, frozen=True, kw_only=True):
    """Bytes a cached token (`n`), a batch token (`m`), their product and the batch squared cost."""

    n: int
    m: int
    nm: int
    mm: int

    def at(self, cached: int, batch: int) -> int:
        return self.n * cached + self.m * batch + self.nm * cached * batch + self.mm * batch * batch


class GroupedCache(Struct, frozen=True, kw_only=True):
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


def reserve(owner: Owner, name: str, size_bytes: int, formula: str) -> Reserve:
    """Bytes set aside, by what they are for."""
    return Reserve(owner=owner, name=name, bytes=size_bytes, formula=formula)
