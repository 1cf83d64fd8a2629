"""Ids of blocks made into identities of what a prompt begins with.

A trace may name a block after its own tokens alone; then two prompts that differ at the start and agree later would seem
to share the later blocks, which no engine's prefix cache does.
"""

from __future__ import annotations

import numpy as np

from vramledger.workload.columns import Ints

MOST_DENSE_ID = 2**27


def is_chained(offsets: Ints, ids: Ints) -> bool:
    """Whether every id always follows the same id (or always stands first): then it stands for all before it."""
    if not len(ids):
        return True
    before = np.empty_like(ids)
    before[1:] = ids[:-1]
    before[offsets[:-1][np.diff(offsets) > 0]] = -1
    if int(ids.max()) < MOST_DENSE_ID:
        # Of several assignments to one place the last holds, so these are those of each id's first.
        last = np.empty(int(ids.max()) + 1, dtype=np.int64)
        last[ids[::-1]] = before[::-1]
        return bool(np.array_equal(before, last[ids]))
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    return bool(np.array_equal(before, before[first][which]))


def chained(offsets: Ints, ids: Ints) -> Ints:
    """Identities, numbered from 0 depth by depth, equal where an id and all ids before it are equal."""
    out = np.empty_like(ids)
    lengths = np.diff(offsets)
    rows = np.flatnonzero(lengths > 0)
    state = np.zeros(len(rows), dtype=np.int64)
    depth, known = 0, 0
    while len(rows):
        places = offsets[:-1][rows] + depth
        here = ids[places]
        _, small = np.unique(here, return_inverse=True)
        pair = state * (int(small.max()) + 1) + small
        _, state = np.unique(pair, return_inverse=True)
        out[places] = state + known
        known += int(state.max()) + 1
        depth += 1
        go_on = lengths[rows] > depth
        rows, state = rows[go_on], state[go_on]
    return out
