"""Binary heaps of pairs: what is sorted by, and what it stands for. Of equal keys the smaller value comes first.

A heap lies at `start` in memory, two numbers an entry.
"""

from __future__ import annotations

from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import Memory


@compiled
def is_ahead(m: Memory, one: int, key: int, value: int) -> bool:
    """Whether the entry at `one` comes before another."""
    return m[one] < key or (m[one] == key and m[one + 1] <= value)


@compiled
def push(m: Memory, start: int, size: int, key: int, value: int) -> int:
    """One more entry; the new size. The caller has made room."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if is_ahead(m, start + 2 * above, key, value):
            break
        m[start + 2 * place] = m[start + 2 * above]
        m[start + 2 * place + 1] = m[start + 2 * above + 1]
        place = above
    m[start + 2 * place] = key
    m[start + 2 * place + 1] = value
    return size + 1


@compiled
def pop(m: Memory, start: int, size: int) -> int:
    """Drops the first entry; the new size."""
    size -= 1
    if size:
        sift_down(m, start, size, 0, m[start + 2 * size], m[start + 2 * size + 1])
    return size


@compiled
def sift_down(m: Memory, start: int, size: int, place: int, key: int, value: int) -> None:
    """Puts an entry where it belongs below `place`, which is free."""
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size:
            right = start + 2 * below + 2
            if not is_ahead(m, right - 2, m[right], m[right + 1]):
                below += 1
        if not is_ahead(m, start + 2 * below, key, value):
            break
        m[start + 2 * place] = m[start + 2 * below]
        m[start + 2 * place + 1] = m[start + 2 * below + 1]
        place = below
    m[start + 2 * place] = key
    m[start + 2 * place + 1] = value


@compiled
def heapify(m: Memory, start: int, size: int) -> None:
    """Any pairs into a heap."""
    for place in range(size // 2 - 1, -1, -1):
        sift_down(m, start, size, place, m[start + 2 * place], m[start + 2 * place + 1])
