"""The queue of waiting requests: first come, first served as a linked list, by priority as a heap."""

from __future__ import annotations

from vramledger.simulation.compiled import heap
from vramledger.simulation.compiled.chain import insert, unlink
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    BASE,
    IS_BLOCKED,
    NEXT,
    NOBODY,
    PHASE,
    PREVIOUS,
    PRIORITY,
    QUEUED,
    RANK,
    RANKS,
    RANKS_AT,
    SCHEDULING,
    SGLANG,
    TURN,
    WAIT_FIRST,
    WAIT_LAST,
    WAITING,
    Memory,
    row_of,
)  # fmt: skip


@compiled
def first_waiting(m: Memory) -> int:
    """The next request to be admitted; there must be one."""
    if not m[PRIORITY]:
        return m[WAIT_FIRST]
    while m[m[RANKS_AT] + 1] < m[BASE] or m[row_of(m, m[m[RANKS_AT] + 1]) + PHASE] != QUEUED:
        m[RANKS] = heap.pop(m, m[RANKS_AT], m[RANKS])
    return m[m[RANKS_AT] + 1]


@compiled
def take_first(m: Memory) -> None:
    """The request that `first_waiting` named leaves the queue."""
    if m[PRIORITY]:
        m[RANKS] = heap.pop(m, m[RANKS_AT], m[RANKS])
        m[WAITING] -= 1
    else:
        leave_queue(m, row_of(m, m[WAIT_FIRST]))


@compiled
def append(m: Memory, row: int, number: int) -> None:
    """A new request."""
    m[row + PHASE] = QUEUED
    if m[PRIORITY]:
        m[RANKS] = heap.push(m, m[RANKS_AT], m[RANKS], m[row + RANK], number)
        m[IS_BLOCKED] = 0
    else:
        insert(m, WAIT_FIRST, WAIT_LAST, PREVIOUS, NEXT, row, number, m[WAIT_LAST], NOBODY)
    m[WAITING] += 1


@compiled
def put_back(m: Memory, row: int, number: int) -> None:
    """A request that was preempted: in front, by its priority, or at its old place."""
    if m[PRIORITY]:
        append(m, row, number)
        return
    m[row + PHASE] = QUEUED
    before, after = NOBODY, m[WAIT_FIRST]
    while m[SCHEDULING] and after != NOBODY and m[row_of(m, after) + TURN] < m[row + TURN]:
        before, after = after, m[row_of(m, after) + NEXT]
    insert(m, WAIT_FIRST, WAIT_LAST, PREVIOUS, NEXT, row, number, before, after)
    m[WAITING] += 1


@compiled
def leave_queue(m: Memory, row: int) -> None:
    """A request leaves from wherever it stands; in the heap its entry is void as soon as its phase is another."""
    m[WAITING] -= 1
    if m[SCHEDULING] != SGLANG:
        m[IS_BLOCKED] = 0
    if m[PRIORITY]:
        return
    unlink(m, WAIT_FIRST, WAIT_LAST, PREVIOUS, NEXT, row)
