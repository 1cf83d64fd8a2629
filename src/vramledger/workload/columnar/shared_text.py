"""How many leading blocks of each prompt are shared, so that a cache of any size finds the share that was asked for.

A request uses one of several texts and shares the first blocks of it. A block is found when an earlier request shared as much of
the same text, so first uses and records miss; what they lose is made up by sharing a little more, until the tokens found so
far are the share asked for of the prompt tokens so far, to a block or as far as the prompts allow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_TRIES = 12


class SharedText:
    """The texts of one cohort, and how much of each was used so far."""

    def __init__(
        self, *, block_tokens: int, hit_share: float, text_tokens: int | None, texts: int, skew: float
    ) -> None:
        self._block_tokens = block_tokens
        self._hit_share = hit_share
        self._text_tokens = text_tokens
        popularity = np.arange(1, texts + 1, dtype=np.float64) ** -skew
        self._places = np.cumsum(popularity / popularity.sum())
        self._longest = np.zeros(texts, dtype=np.int64)
        self._owed_tokens = 0.0

    def blocks(self, prompts: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """For consecutive requests: the text of each, and how many of its leading blocks it begins with.

        At least one token of a prompt is its own: engines compute the last one in any case.
        """
        count = len(prompts)
        places, rounding = rng.random(count), rng.random(count)
        texts = np.minimum(np.searchsorted(self._places, places, side="right"), len(self._places) - 1)
        most = (prompts - 1) // self._block_tokens
        if self._text_tokens is not None:
            return texts, np.minimum(most, self._text_tokens // self._block_tokens)
        order = np.argsort(texts, kind="stable")
        group = texts[order]
        total = float(prompts.sum())
        aim = self._hit_share * total + self._owed_tokens
        share = aim / total
        shared, found, longest = most, 0, self._longest
        for _ in range(_TRIES):
            share = min(max(share, 0.0), 1.0)
            shared = np.minimum((share * prompts / self._block_tokens + rounding).astype(np.int64), most)
            blocks, longest = _found(shared[order], group, self._longest)
            found = blocks * self._block_tokens
            if abs(found - aim) <= self._block_tokens:
                break
            share += (aim - found) / total
        self._longest = longest
        # What cannot be made up now (a first request has nothing to find) is made up later, within limits.
        self._owed_tokens = min(max(aim - found, -total), total)
        return texts, shared


def _found(shared: Ints, group: Ints, longest: Ints) -> tuple[int, Ints]:
    """Blocks that are found by requests ordered by text, and how much of each text is used in the end."""
    apart = int(max(shared.max(initial=0), longest.max(initial=0))) + 1
    base = group * apart
    used = np.maximum.accumulate(np.maximum(shared, longest[group]) + base) - base
    first = np.ones(len(group), dtype=bool)
    first[1:] = group[1:] != group[:-1]
    before = np.empty_like(used)
    before[1:] = used[:-1]
    before[first] = longest[group[first]]
    after = longest.copy()
    after[group] = used  # the last request of a text is written last
    return int(np.minimum(shared, before).sum()), after
