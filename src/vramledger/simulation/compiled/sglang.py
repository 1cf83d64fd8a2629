"""SGLang's scheduling of one step (rules: `simulation.schedulers.sglang`): a prefill batch, or a token of all that decodes."""

from __future__ import annotations

from vramledger.simulation.compiled import heap
from vramledger.simulation.compiled.decoding import (
    due_step,
    in_turn,
    make_room,
    needed_by_decodes,
    stop_decoding,
)
from vramledger.simulation.compiled.holdings import covering, give_back, name_filled
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    BLOCK,
    CHOSEN_AT,
    COMMITTED,
    COMPUTED,
    DECODED_TOKENS,
    DECODING,
    EXPECTED,
    FINISHES,
    FINISHES_AT,
    FREE,
    HIGH,
    IS_BLOCKED,
    IS_PREFILL,
    KNOWN,
    LAST_DECODE_TURN,
    LOST_TOKENS,
    NOBODY,
    PARTIAL,
    PLAN_DECODES,
    PLAN_KV,
    PLAN_PREEMPTED,
    PREEMPTED,
    PREEMPTIONS,
    PREFILLING,
    PREFILLS_AT,
    PROMPT,
    SEQUENCE,
    SHARE,
    STEP,
    TURN,
    WAITING,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.pool import take
from vramledger.simulation.compiled.queue import append
from vramledger.simulation.compiled.running import leave_running
from vramledger.simulation.compiled.sglang_prefill import listed_decodes, prefill
from vramledger.simulation.compiled.token_ratio import decay, ratio_after_retraction, reset_ratio


@compiled
def schedule_sglang(m: Memory) -> None:
    """Decides and allocates a step."""
    m[PLAN_PREEMPTED] = m[PLAN_DECODES] = m[PLAN_KV] = m[IS_PREFILL] = 0
    m[LAST_DECODE_TURN] = NOBODY
    if not m[DECODING]:
        m[IS_BLOCKED] = 0
    if m[PARTIAL] != NOBODY:
        row = row_of(m, m[PARTIAL])
        name_filled(m, row, m[row + COMPUTED])
    for place in range(m[PREFILLING]):
        m[row_of(m, m[m[PREFILLS_AT] + place]) + SHARE] = 0
    if prefill(m):
        m[IS_PREFILL] = 1
        return
    if m[DECODING]:
        if needed_by_decodes(m, 1) > m[FREE]:
            retract(m)
        else:
            decay(m, 1)
        take(m, needed_by_decodes(m, 1))
        m[PLAN_DECODES] = m[DECODING]
        m[PLAN_KV] = m[DECODED_TOKENS]
    elif not m[WAITING]:
        reset_ratio(m)


@compiled
def is_kept_before(m: Memory, one: int, other: int) -> bool:
    """Whether a decoding request is more worth keeping than another: the longer output, then the shorter prompt."""
    row, beside = row_of(m, one), row_of(m, other)
    generated = m[row + COMPUTED] - m[row + PROMPT]
    beside_generated = m[beside + COMPUTED] - m[beside + PROMPT]
    return generated > beside_generated or (
        generated == beside_generated and m[row + PROMPT] < m[beside + PROMPT]
    )


@compiled
def retract(m: Memory) -> None:
    """Requests give way until the rest has its next pages: at least one, and the last one too if even it does not fit."""
    count, at = listed_decodes(m), m[CHOSEN_AT]
    for place in range(1, count):
        number, before = m[at + place], place
        while before and is_kept_before(m, number, m[at + before - 1]):
            m[at + before] = m[at + before - 1]
            before -= 1
        m[at + before] = number
    while count > 1:
        count -= 1
        give_way(m, m[at + count])
        if needed_by_decodes(m, 1) <= m[FREE]:
            break
    if count == 1 and needed_by_decodes(m, 1) > m[FREE]:
        count = 0
        give_way(m, m[at])
    generated, most = 0, 0
    for place in range(count):
        # From now on in this order.
        number = m[at + place]
        row = row_of(m, number)
        m[SEQUENCE] += 1
        m[row + TURN] = m[SEQUENCE]
        make_room(m)
        m[FINISHES] = heap.push(m, m[FINISHES_AT], m[FINISHES], in_turn(m, row, due_step(m, row)), number)
        generated += m[row + COMPUTED] + m[STEP] + 1 - m[row + PROMPT]
        most += m[row + EXPECTED]
    ratio_after_retraction(m, generated, count, most)
    m[IS_BLOCKED] = 0


@compiled
def give_way(m: Memory, number: int) -> None:
    """Its blocks go, what its prefill computed stays to be found, and it waits behind all others."""
    row = row_of(m, number)
    leave_running(m, row, number)
    stop_decoding(m, row)
    computed = m[row + COMPUTED]
    m[row + KNOWN] = computed + 1
    give_back(m, row, covering(computed, m[BLOCK]), m[row + COMMITTED], number)
    m[row + HIGH] = max(m[row + HIGH], computed)
    m[row + COMPUTED] = 0
    m[row + PREEMPTED] += 1
    m[PREEMPTIONS] += 1
    m[PLAN_PREEMPTED] += 1
    m[LOST_TOKENS] += m[row + HIGH]
    append(m, row, number)
