"""The list of running requests, in order of admission, and of those among them that prefill."""

from __future__ import annotations

from vramledger.simulation.compiled.chain import insert, unlink
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    NEXT,
    NOBODY,
    PHASE,
    PREFILL,
    PREFILLING,
    PREFILLS_AT,
    PREVIOUS,
    RUN_FIRST,
    RUN_LAST,
    RUNNING,
    Memory,
)  # fmt: skip


@compiled
def enter_running(m: Memory, row: int, number: int) -> None:
    """To the end of the running list."""
    insert(m, RUN_FIRST, RUN_LAST, PREVIOUS, NEXT, row, number, m[RUN_LAST], NOBODY)
    m[RUNNING] += 1


@compiled
def leave_running(m: Memory, row: int, number: int) -> None:
    """Out of the running list, and of those that prefill."""
    unlink(m, RUN_FIRST, RUN_LAST, PREVIOUS, NEXT, row)
    m[RUNNING] -= 1
    if m[row + PHASE] == PREFILL:
        place = 0
        while m[m[PREFILLS_AT] + place] != number:
            place += 1
        m[PREFILLING] -= 1
        for later in range(place, m[PREFILLING]):
            m[m[PREFILLS_AT] + later] = m[m[PREFILLS_AT] + later + 1]
