"""Conversations of a trace that names none, told by its blocks: a prompt that begins with the whole of an earlier one follows it.

Of several that begin with the same prompt the first follows it; a prompt that many begin with is a text they share.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MOST_FOLLOWERS = 2


def inferred_conversations(found_blocks: Ints, owners: Ints, prompts: Ints, block_tokens: int) -> Ints:
    """A conversation for each request that follows another or is followed, -1 for the others.

    `owners` had the last of the `found_blocks` first. A request follows its owner where all full blocks of the owner's prompt were
    found, and the owner brought at least one of them.
    """
    has = owners >= 0
    before = np.maximum(owners, 0)
    whole = prompts[before] // block_tokens
    follows = has & (whole > 0) & (found_blocks >= whole) & (prompts > prompts[before])
    followers = np.bincount(owners[follows], minlength=len(prompts))
    follows &= followers[before] <= MOST_FOLLOWERS
    first = np.full(len(prompts), len(prompts), dtype=np.int64)
    np.minimum.at(first, owners[follows], np.flatnonzero(follows))
    follows &= first[before] == np.arange(len(prompts))
    root = np.where(follows, owners, np.arange(len(prompts)))
    while True:
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    turns = np.bincount(root, minlength=len(prompts))
    return np.where(turns[root] > 1, root, -1)
