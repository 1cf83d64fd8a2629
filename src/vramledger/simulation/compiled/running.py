"""The list of running requests, in order of admission, and of those among them that prefill."""

from __future__ import annotations

from vramledger.simulation.compiled.chain import insert, unlink
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    ADMITTED,
    COMPUTED,
    HIGH,
    HIT,
    HIT_TOKENS,
    KNOWN,
    LOOKED_UP_TOKENS,
    LOST_TOKENS,
    NEXT,
    NOBODY,
    NOW,
    PHASE,
    PREFILL,
    PREFILLING,
    PREFILLS_AT,
    PREVIOUS,
    RUN_FIRST,
    RUN_LAST,
    RUNNING,
    SEQUENCE,
    SHARE,
    TURN,
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


@compiled
def begin_prefill(m: Memory, row: int, number: int, computed: int, share: int) -> None:
    """A request runs, the last of those that run and of those that prefill: `share` tokens after those `computed`."""
    m[SEQUENCE] += 1
    m[row + TURN] = m[SEQUENCE]
    m[row + PHASE] = PREFILL
    m[row + COMPUTED] = computed
    m[row + SHARE] = share
    enter_running(m, row, number)
    m[m[PREFILLS_AT] + m[PREFILLING]] = number
    m[PREFILLING] += 1
    note_admission(m, row, computed)


@compiled
def note_admission(m: Memory, row: int, hit_tokens: int) -> None:
    """What a preemption lost is found or computed again; what a first look found is the request's."""
    m[LOST_TOKENS] -= m[row + HIGH]
    if m[row + ADMITTED] == NOBODY:
        m[row + ADMITTED] = m[NOW]
        m[row + HIT] = hit_tokens
        m[HIT_TOKENS] += hit_tokens
        m[LOOKED_UP_TOKENS] += m[row + KNOWN]
