"""What a scheme takes, and what all of them count alike."""

from __future__ import annotations

from fractions import Fraction

from msgspec import Struct

from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.means import final_units, running_tokens, running_units
from vramledger.kvcache.shape import CacheGroup, CacheShape
from vramledger.ledger import ByteRange
from vramledger.units import KIB, MIB, ceil_div

TABLE_ENTRY_BYTES = 4


class Waste(Struct, frozen=True, kw_only=True):
    """Bytes that are held for no token, by cause.

    `rounding_bytes` are the rest of a last block or page and layers that only pad a pool, `ahead_bytes` what is
    mapped or reserved for tokens to come, `stale_bytes` tokens that have left a window.
    """

    rounding_bytes: int = 0
    ahead_bytes: int = 0
    stale_bytes: int = 0


class Allocation(Struct, frozen=True, kw_only=True):
    """What one scheme takes for `requests` requests.

    `used_bytes` are their tokens' at a moment while they run, `held_bytes` what is taken for them then, with
    `final_bytes` at the last length of each. `fixed_bytes` is held whatever runs, `table_bytes` are block tables on
    the device, `virtual_bytes` reserved addresses, `idle_bytes` what the device does not get back when all requests
    have ended. `fit_running` and `fit_final` are how many requests the pool holds by these two measures. Where a
    scheme cannot be had `refusal` says why, and nothing else is told.
    """

    scheme: str
    source: str
    requests: int
    unit_bytes: int = 0
    unit_tokens: int = 0
    used_bytes: int = 0
    held_bytes: ByteRange = ByteRange.exact(0)
    final_bytes: int = 0
    waste: Waste = Waste()
    fixed_bytes: int = 0
    table_bytes: int = 0
    virtual_bytes: int = 0
    idle_bytes: int = 0
    fit_running: int = 0
    fit_final: int = 0
    notes: tuple[str, ...] = ()
    refusal: str = ""


def whole(value: Fraction) -> int:
    """The nearest whole number."""
    return int(value + Fraction(1, 2))


def used_bytes(shape: CacheShape, lengths: Lengths) -> Fraction:
    """Mean bytes of the tokens and states of one running request."""
    total = constant_bytes(shape)
    for group in shape.growing:
        total += group.token_bytes * running_tokens(lengths, group.kept)
    return total


def constant_bytes(shape: CacheShape) -> Fraction:
    """What a request's states and other caches of fixed length take."""
    return Fraction(sum(group.content_bytes * group.constant_blocks for group in shape.constant))


def blocks_of(group: CacheGroup, lengths: Lengths) -> tuple[Fraction, Fraction]:
    """Mean blocks of a request while it runs, and at its end."""
    if group.constant_blocks:
        return Fraction(group.constant_blocks), Fraction(group.constant_blocks)
    size, kept = group.block_size, group.kept
    return running_units(lengths, kept, size), final_units(lengths, kept, size)


def tables_bytes(shape: CacheShape, requests: int) -> int:
    """Rows of int32 block ids, one for each request and group, as long as the longest context."""
    rows = sum(group.constant_blocks or ceil_div(shape.max_len, group.block_size) for group in shape.groups)
    return requests * rows * TABLE_ENTRY_BYTES


def page_name(size_bytes: int) -> str:
    """ "64 KiB", "2 MiB"."""
    return f"{size_bytes // MIB} MiB" if size_bytes % MIB == 0 else f"{size_bytes // KIB} KiB"
