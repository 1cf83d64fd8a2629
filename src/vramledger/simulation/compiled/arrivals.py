"""All requests that an engine has, running or not, in order of arrival: what engines look at that keep one list of both."""

from __future__ import annotations

from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    EARLIER,
    EXPECTED,
    LATER_ONE,
    LIST_FIRST,
    LIST_LAST,
    NOBODY,
    PROMPT,
    SCHEDULING,
    SENT_COUNT,
    SGLANG,
    TURN,
    Memory,
    row_of,
)  # fmt: skip


@compiled
def enter_list(m: Memory, row: int, number: int) -> None:
    """A request that was sent, at the end."""
    if not m[SCHEDULING] or m[SCHEDULING] == SGLANG:
        return
    last = m[LIST_LAST]
    m[row + TURN] = m[SENT_COUNT]
    m[row + EARLIER] = last
    m[row + LATER_ONE] = NOBODY
    if last == NOBODY:
        m[LIST_FIRST] = number
    else:
        m[row_of(m, last) + LATER_ONE] = number
    m[LIST_LAST] = number


@compiled
def leave_list(m: Memory, row: int) -> None:
    """A request that is over."""
    if not m[SCHEDULING] or m[SCHEDULING] == SGLANG:
        return
    before, after = m[row + EARLIER], m[row + LATER_ONE]
    if before == NOBODY:
        m[LIST_FIRST] = after
    else:
        m[row_of(m, before) + LATER_ONE] = after
    if after == NOBODY:
        m[LIST_LAST] = before
    else:
        m[row_of(m, after) + EARLIER] = before


@compiled
def blocks_at_most(m: Memory, row: int, block: int) -> int:
    """Blocks that a request holds if it generates all that it may."""
    return (m[row + PROMPT] + m[row + EXPECTED] + block - 1) // block
