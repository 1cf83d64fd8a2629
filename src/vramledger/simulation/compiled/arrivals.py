"""All requests that an engine has, running or not, in order of arrival: what engines look at that keep one list of both."""

from __future__ import annotations

from vramledger.simulation.compiled.chain import insert, unlink
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
)  # fmt: skip


@compiled
def enter_list(m: Memory, row: int, number: int) -> None:
    """A request that was sent, at the end."""
    if not m[SCHEDULING] or m[SCHEDULING] == SGLANG:
        return
    m[row + TURN] = m[SENT_COUNT]
    insert(m, LIST_FIRST, LIST_LAST, EARLIER, LATER_ONE, row, number, m[LIST_LAST], NOBODY)


@compiled
def leave_list(m: Memory, row: int) -> None:
    """A request that is over."""
    if not m[SCHEDULING] or m[SCHEDULING] == SGLANG:
        return
    unlink(m, LIST_FIRST, LIST_LAST, EARLIER, LATER_ONE, row)


@compiled
def blocks_at_most(m: Memory, row: int, block: int) -> int:
    """Blocks that a request holds if it generates all that it may."""
    return (m[row + PROMPT] + m[row + EXPECTED] + block - 1) // block
