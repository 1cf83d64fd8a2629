"""Requests in a row: doubly linked lists over their records.

A list is told by where it keeps its ends (`first`, `last`) and which fields of a record are its links (`previous`, `following`).
"""

from __future__ import annotations

from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import NOBODY, Memory, row_of


@compiled
def insert(
    m: Memory,
    first: int,
    last: int,
    previous: int,
    following: int,
    row: int,
    number: int,
    before: int,
    after: int,
) -> None:
    """Between two neighbours in the list; NOBODY stands for its ends."""
    m[row + previous] = before
    m[row + following] = after
    if before == NOBODY:
        m[first] = number
    else:
        m[row_of(m, before) + following] = number
    if after == NOBODY:
        m[last] = number
    else:
        m[row_of(m, after) + previous] = number


@compiled
def unlink(m: Memory, first: int, last: int, previous: int, following: int, row: int) -> None:
    """Out, from wherever it stands."""
    before, after = m[row + previous], m[row + following]
    if before == NOBODY:
        m[first] = after
    else:
        m[row_of(m, before) + following] = after
    if after == NOBODY:
        m[last] = before
    else:
        m[row_of(m, after) + previous] = before
