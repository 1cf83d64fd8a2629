"""Whole numbers side by side in one integer, so that one operation of the interpreter changes all of them at once.

Lane `i` of lanes of `bits` bits has the weight `2 ** (bits * i)`. Sums, and products with one number, act on every lane; they stay apart as
long as each lane stays within 0 and `2 ** bits`, which is the caller's to see to.
"""

from __future__ import annotations

from functools import lru_cache
from sys import byteorder


@lru_cache(maxsize=1024)
def ones(count: int, bits: int) -> int:
    """A 1 in each of so many lanes."""
    return ((1 << bits * count) - 1) // ((1 << bits) - 1)


def lane(packed: int, place: int, bits: int) -> int:
    """The number in one lane."""
    return (packed >> bits * place) & ((1 << bits) - 1)


def inserted(packed: int, place: int, value: int, bits: int) -> int:
    """With a lane more, before the one that was at `place`."""
    at = bits * place
    upper = packed >> at
    return packed + (((upper << bits) + value - upper) << at)


def deleted(packed: int, place: int, bits: int) -> int:
    """Without a lane."""
    at = bits * place
    upper = packed >> at
    return packed - ((upper - (upper >> bits)) << at)


def unpacked(packed: int, count: int, bits: int) -> memoryview:
    """The numbers of all lanes, of 32 or 64 bits."""
    numbers = memoryview(packed.to_bytes(count * bits // 8, byteorder)).cast("I" if bits == 32 else "Q")
    return numbers if byteorder == "little" else numbers[::-1]
