"""Whole units of tokens that a length takes, and the sum of them over all lengths up to one.

A unit is a block, or what a page of memory holds. Sums are in closed form, so a mean over millions of steps is exact
and takes no longer than one over a few.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.units import ceil_div


class Kept(Struct, frozen=True, kw_only=True):
    """Which tokens of a context stay: the last `window` of them, or those since the last multiple of `chunk`.

    With neither all stay.
    """

    window: int = 0
    chunk: int = 0

    def tokens(self, length: int) -> int:
        """Tokens that stay of `length`."""
        return length - self._gone(length)

    def most_tokens(self, length: int) -> int:
        """The most that stays at any length up to this one."""
        return min(length, self.window or self.chunk or length)

    def units(self, length: int, unit: int) -> int:
        """Units that hold them; a unit goes when no token in it stays."""
        return ceil_div(length, unit) - self._gone(length) // unit

    def tokens_upto(self, length: int) -> int:
        """tokens(1) + ... + tokens(length)."""
        if self.chunk:
            whole, rest = divmod(length, self.chunk)
            return whole * _triangle(self.chunk) + _triangle(rest)
        return _triangle(length) - (_triangle(max(length - self.window, 0)) if self.window else 0)

    def units_upto(self, length: int, unit: int) -> int:
        """units(1, unit) + ... + units(length, unit)."""
        held = _ceilings(length, unit)
        if self.chunk:
            whole, rest = divmod(length, self.chunk)
            gone = sum(self.chunk * (index * self.chunk // unit) for index in range(whole))
            return held - gone - rest * (whole * self.chunk // unit)
        return held - (_floors(max(length - self.window, 0), unit) if self.window else 0)

    def _gone(self, length: int) -> int:
        if self.chunk:
            return (length - 1) // self.chunk * self.chunk if length else 0
        return max(length - self.window, 0) if self.window else 0


ALL = Kept()


def _triangle(count: int) -> int:
    return count * (count + 1) // 2


def _ceilings(count: int, unit: int) -> int:
    """ceil(1 / unit) + ... + ceil(count / unit)."""
    whole, rest = divmod(count, unit)
    return unit * _triangle(whole) + rest * (whole + 1)


def _floors(count: int, unit: int) -> int:
    """floor(1 / unit) + ... + floor(count / unit)."""
    whole, rest = divmod(count, unit)
    return unit * _triangle(whole - 1) + whole * (rest + 1) if whole else 0
