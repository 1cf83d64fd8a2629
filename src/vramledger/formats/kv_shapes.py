"""What a layer caches of a token, and the bytes that a format makes of it.

Sizes are of one layer on one rank. Full precision has 2 bytes an element.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict, astuple

from vramledger.formats.dtypes import DType
from vramledger.ledger import ByteRange

FULL = DType.BF16.bytes_for(1)


class Heads(Struct, frozen=True, kw_only=True):
    """What a layer caches of a token: `kv_heads` keys of `head_dim` and as many values of `v_head_dim`."""

    kv_heads: int
    head_dim: int
    v_head_dim: int

    @property
    def key_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        return self.kv_heads * self.v_head_dim

    @property
    def elements(self) -> int:
        return self.key_width + self.value_width


class Latent(Struct, frozen=True, kw_only=True):
    """What a layer of multi-head latent attention caches of a token: one vector for all heads."""

    kv_lora_rank: int
    rope_dim: int

    @property
    def elements(self) -> int:
        return self.kv_lora_rank + self.rope_dim


Shape = Heads | Latent


class Side(Struct, frozen=True, kw_only=True):
    """Bytes of the keys, or of the values.

    `window_bytes` are tokens kept in full precision, `tables_bytes` what is held once, whatever the length.
    """

    packed_bytes: int = 0
    scale_bytes: int = 0
    window_bytes: int = 0
    outlier_bytes: int = 0
    tables_bytes: int = 0
    padding_bytes: int = 0

    @property
    def bytes(self) -> int:
        return sum(astuple(self))

    def __add__(self, other: Side) -> Side:
        return Side(**{name: size + getattr(other, name) for name, size in asdict(self).items()})

    def times(self, count: int) -> Side:
        """So many of it."""
        return Side(**{name: size * count for name, size in asdict(self).items()})


class Stored(Struct, frozen=True, kw_only=True):
    """One layer's cache. A latent is all key. `workspace` is what reading it back takes beside it, one layer at a
    time, None where that is not known."""

    key: Side
    value: Side
    workspace: ByteRange | None

    @property
    def bytes(self) -> int:
        return self.key.bytes + self.value.bytes
