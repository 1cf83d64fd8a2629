"""Blocks held over steps to come, and their peak by the definition."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from vramledger.admission.need import Need

NEVER = 2**62
"""The end of a holding whose end is not to be relied on."""


class Holding(NamedTuple):
    """What a request holds from now on, over the steps of an engine in which each sequence grows by one token.

    At step `s` each of its `branches` has `offset_tokens + min(s, growth_end)` tokens, through step `hold_end`; after that all its blocks are
    back. A hold that is longer than the growth is for steps in which it may have to wait: whenever these come, it holds no
    more than this. `common_blocks` are held by all branches together, and `keys` name blocks of its beginning that are held once for all
    that name them.
    """

    offset_tokens: int
    growth_end: int
    hold_end: int
    branches: int = 1
    common_blocks: int = 0
    keys: tuple[Hashable, ...] = ()

    def blocks_at(self, step: int, need: Need) -> int:
        """Its blocks at a step up to `hold_end`, those that others name too among them."""
        tokens = self.offset_tokens + min(step, self.growth_end)
        return need.blocks(tokens, self.branches, self.common_blocks)


def usage_blocks(holdings: Iterable[Holding], need: Need, step: int) -> int:
    """Blocks that all hold at a step, those of equal keys once."""
    alive = [holding for holding in holdings if holding.hold_end >= step]
    own = sum(holding.blocks_at(step, need) - len(holding.keys) for holding in alive)
    return own + len({key for holding in alive for key in holding.keys})


def peak_blocks(holdings: Iterable[Holding], need: Need) -> int:
    """The most that all hold at once. Between two ends nothing comes back, so it lies at an end: before what ends there is back."""
    rows = list(holdings)
    return max((usage_blocks(rows, need, step) for step in {row.hold_end for row in rows}), default=0)
