"""Which contexts TensorRT-LLM finds room for: to their end, or for their next step."""

from __future__ import annotations

from vramledger.simulation.compiled.arrivals import blocks_at_most
from vramledger.simulation.compiled.decoding import needed_by_decodes, stop_decoding
from vramledger.simulation.compiled.holdings import covering, give_back, key_of, look_up, name_filled
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    AWAITED_AT,
    BLOCK,
    CACHING,
    CHOSEN_AT,
    CHUNKED,
    COMPUTED,
    DECODE,
    EARLIER,
    EXTRA_REFS,
    FREE,
    HAS_MIXED,
    HIGH,
    IS_BLOCKED,
    KNOWN,
    LATER_ONE,
    LIST_FIRST,
    LIST_LAST,
    LOST_TOKENS,
    MAX_SEQS,
    NOBODY,
    PHASE,
    PLAN_PREEMPTED,
    PREEMPTED,
    PREEMPTIONS,
    PREFILLING,
    PREFILLS_AT,
    PROMPT,
    QUEUED,
    RESERVED,
    SHARE,
    STEP,
    USABLE,
    WAITING,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.queue import put_back
from vramledger.simulation.compiled.running import leave_running


@compiled
def fitting_to_the_end(m: Memory) -> int:
    """Contexts that can be completed beside all that generates, by arrival, into the chosen; how many."""
    block = m[BLOCK]
    free = m[USABLE] + m[EXTRA_REFS] - m[RESERVED]
    for place in range(m[PREFILLING]):
        row = row_of(m, m[m[PREFILLS_AT] + place])
        free += blocks_at_most(m, row, block) - covering(m[row + KNOWN], block)
    if m[IS_BLOCKED] or not m[WAITING]:
        return chosen_running(m, free)
    awaited = contributed(m)
    chosen, places, has_skipped = 0, m[MAX_SEQS], False
    number = m[LIST_FIRST]
    while number != NOBODY and places > 0:
        row = row_of(m, number)
        places -= 1
        if m[row + PHASE] != DECODE:
            needed = blocks_at_most(m, row, block)
            if m[row + PHASE] == QUEUED:
                hits, unheld = look_up(m, row)
                told = told_to_wait(m, row, hits * block, awaited)
                if told < 0:
                    has_skipped = True
                    number = m[row + LATER_ONE]
                    continue
                awaited = told
                needed -= hits - unheld
            else:
                needed -= covering(m[row + KNOWN], block)
            if needed > free:
                break
            free -= needed
            m[m[CHOSEN_AT] + chosen] = number
            chosen += 1
        number = m[row + LATER_ONE]
    m[IS_BLOCKED] = not (chosen or has_skipped or m[PREFILLING])
    return chosen


@compiled
def chosen_running(m: Memory, free: int) -> int:
    """Contexts that are under way, where no request waits that could start."""
    block = m[BLOCK]
    for place in range(m[PREFILLING]):
        number = m[m[PREFILLS_AT] + place]
        row = row_of(m, number)
        free -= blocks_at_most(m, row, block) - covering(m[row + KNOWN], block)
        if free < 0:
            return place
        m[m[CHOSEN_AT] + place] = number
    return m[PREFILLING]


@compiled
def fitting_to_the_next_step(m: Memory) -> int:
    """Contexts that there is room for beside the next step of what generates, by arrival; for want of room the last one started pauses.

    With HAS_MIXED what generates is among them.
    """
    block = m[BLOCK]
    if (m[IS_BLOCKED] or not m[WAITING]) and needed_by_decodes(m, 1) <= m[FREE]:
        return chosen_running(m, m[USABLE] * m[USABLE])
    awaited = contributed(m)
    stop, places = m[LIST_FIRST], m[MAX_SEQS]
    while stop != NOBODY and places > 0:
        stop = m[row_of(m, stop) + LATER_ONE]
        places -= 1
    chosen, contexts, taken, has_skipped = 0, 0, 0, False
    # Without chunks a context takes its tokens before what generates behind it.
    m[HAS_MIXED] = not m[CHUNKED]
    number = m[LIST_FIRST]
    while number != stop:
        row = row_of(m, number)
        phase = m[row + PHASE]
        needed = 0
        if phase == QUEUED:
            hits, unheld = look_up(m, row)
            told = told_to_wait(m, row, hits * block, awaited)
            if told < 0:
                has_skipped = True
                number = m[row + LATER_ONE]
                continue
            awaited = told
            needed = covering(m[row + KNOWN], block) - (hits - unheld)
        elif phase == DECODE:
            computed = m[row + COMPUTED] + m[STEP]
            needed = covering(computed + 1, block) - covering(computed, block)
        if taken + needed <= m[FREE]:
            taken += needed
            if phase != DECODE or m[HAS_MIXED]:
                m[m[CHOSEN_AT] + chosen] = number
                chosen += 1
            contexts += phase != DECODE
            number = m[row + LATER_ONE]
            continue
        victim = m[LIST_LAST] if stop == NOBODY else m[row_of(m, stop) + EARLIER]
        while victim != number and m[row_of(m, victim) + PHASE] == QUEUED:
            victim = m[row_of(m, victim) + EARLIER]
        if m[row_of(m, victim) + PHASE] == QUEUED:
            break
        pause(m, victim)
        stop = victim
    m[IS_BLOCKED] = m[WAITING] > 0 and not (contexts or has_skipped or m[PREFILLING] or m[PLAN_PREEMPTED])
    return chosen


@compiled
def pause(m: Memory, number: int) -> None:
    """Blocks go, what is computed in them stays to be found; it waits at its old place."""
    row = row_of(m, number)
    leave_running(m, row, number)
    held = covering(m[row + KNOWN], m[BLOCK])
    if m[row + PHASE] == DECODE:
        stop_decoding(m, row)
        m[row + KNOWN] = m[row + COMPUTED] + 1
        held = covering(m[row + COMPUTED], m[BLOCK])
    computed = m[row + COMPUTED]
    name_filled(m, row, computed)
    give_back(m, row, held, computed, number)
    m[RESERVED] -= blocks_at_most(m, row, m[BLOCK])
    m[row + HIGH] = max(m[row + HIGH], computed)
    m[row + COMPUTED] = 0
    m[row + SHARE] = 0
    m[row + PREEMPTED] += 1
    m[PREEMPTIONS] += 1
    m[PLAN_PREEMPTED] += 1
    m[LOST_TOKENS] += m[row + HIGH]
    put_back(m, row, number)


@compiled
def contributed(m: Memory) -> int:
    """The first block that each context under way will add to the cache, into the awaited; how many."""
    count = 0
    for place in range(m[PREFILLING]):
        row = row_of(m, m[m[PREFILLS_AT] + place])
        count = awaiting(m, row, m[row + COMPUTED], count)
    return count


@compiled
def awaiting(m: Memory, row: int, tokens: int, count: int) -> int:
    """One awaited block more, if a request's first block behind `tokens` is full of its prompt."""
    block = tokens // m[BLOCK]
    if m[CACHING] and (block + 1) * m[BLOCK] <= m[row + PROMPT]:
        identity, place = key_of(m, row, block)
        m[m[AWAITED_AT] + 2 * count] = identity
        m[m[AWAITED_AT] + 2 * count + 1] = place
        return count + 1
    return count


@compiled
def told_to_wait(m: Memory, row: int, tokens: int, count: int) -> int:
    """NOBODY where another request computes the next block of one that has not started; else how many blocks are awaited now."""
    then = awaiting(m, row, tokens, count)
    if then > count:
        identity, place = m[m[AWAITED_AT] + 2 * count], m[m[AWAITED_AT] + 2 * count + 1]
        for other in range(count):
            if m[m[AWAITED_AT] + 2 * other] == identity and m[m[AWAITED_AT] + 2 * other + 1] == place:
                return NOBODY
    return then
