"""What a session holds, as runs of identities: the beginning it shares, and versions of its own text.

A version begins at the block where the text before it changed; blocks before that keep their identities. Blocks are counted from
the beginning of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_OPEN = 2**40


class Run(NamedTuple):
    """Blocks `start` to `end` have the identities `first`, `first + 1`, ..."""

    first: int
    start: int
    end: int


class History:
    """The text of one session; `allot(blocks)` gives the first of so many new identities."""

    def __init__(self, head: Sequence[Run], allot: Callable[[int], int]) -> None:
        self._allot = allot
        self._runs: list[Run] = []
        self.reset(head)

    def reset(self, head: Sequence[Run]) -> None:
        """All text is new but the blocks of `head`."""
        self._runs = [run for run in head if run.end > run.start]
        self._own = self._runs[-1].end if self._runs else 0

    def rewrite(self, block: int) -> None:
        """Text from `block` on is new; what all sessions share stays."""
        self._own = block
        kept = [run._replace(end=min(run.end, block)) for run in self._runs]
        self._runs = [run for run in kept if run.end > run.start]

    def extend(self, blocks: Ints) -> tuple[Ints, Ints, Ints]:
        """Runs of consecutive turns that hold so many blocks each and only add to the text: counts, firsts, lengths."""
        reach = int(blocks.max())
        if reach > self._own:
            first = self._allot(reach - self._own)
            self._runs.append(Run(first, self._own, _OPEN))
        runs = np.array(self._runs, dtype=np.int64).reshape(-1, 3)
        firsts, starts, ends = runs[:, 0], runs[:, 1], runs[:, 2]
        lengths = np.clip(blocks[:, None] - starts, 0, ends - starts)
        if reach > self._own:
            self._runs[-1] = self._runs[-1]._replace(end=reach)
            self._own = reach
        counts = np.full(len(blocks), len(self._runs), dtype=np.int64)
        return counts, np.tile(firsts, len(blocks)), lengths.ravel()
