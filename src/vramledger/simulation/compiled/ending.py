"""How requests are sent, and how they leave."""

from __future__ import annotations

from vramledger.simulation.compiled import heap
from vramledger.simulation.compiled.arrivals import blocks_at_most, enter_list, leave_list
from vramledger.simulation.compiled.decoding import is_due, stop_decoding
from vramledger.simulation.compiled.holdings import covering, give_back, name_filled
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    BASE,
    BLOCK,
    CANCEL,
    CHILD,
    COMPUTED,
    DEADLINE,
    DECODE,
    END,
    ENDED_COUNT,
    ENDING,
    ENDINGS,
    ENDINGS_AT,
    FINISHES,
    FINISHES_AT,
    FIRST_DEADLINE,
    FIRST_TOKEN,
    FITS,
    FOREVER,
    HIGH,
    IS_BLOCKED,
    IS_OVERRUN,
    KNOWN,
    LAG,
    LATER_ONE,
    LIST_FIRST,
    LOADED,
    LOST_TOKENS,
    NEXT,
    NEXT_NUMBER,
    NOBODY,
    NOW,
    OVER,
    PARENT,
    PARTIAL,
    PAUSE,
    PHASE,
    PREFILL,
    QUEUED,
    RANK,
    REFS,
    RESERVED,
    RUN_FIRST,
    RUN_NODE,
    RUNNING,
    SCHEDULING,
    SENDS,
    SENDS_AT,
    SENT,
    SENT_COUNT,
    SGLANG,
    SHARE,
    SIBLING,
    STATUS,
    STEP,
    TIMERS,
    TIMERS_AT,
    TURN,
    WAITING,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.queue import append, first_waiting, leave_queue
from vramledger.simulation.compiled.running import leave_running

FINISHED, CANCELLED, NEVER_FITS, EXPIRED, LIVELOCKED, UNFINISHED = range(6)
"""`simulation.outcome.Status`."""
_KIND = 1 << 50


@compiled
def end(m: Memory, row: int, status: int, now_ps: int) -> None:
    """A request is over; its children are on their way."""
    m[row + STATUS] = status
    m[row + END] = now_ps
    m[row + PHASE] = OVER
    m[ENDED_COUNT] += 1
    child = m[row + CHILD]
    while child != NOBODY:
        child_row = row_of(m, child)
        m[SENDS] = heap.push(m, m[SENDS_AT], m[SENDS], now_ps + m[child_row + PAUSE], child)
        child = m[child_row + SIBLING]


@compiled
def finish(m: Memory, row: int, number: int) -> None:
    """A decoding sequence has its last token."""
    leave_running(m, row, number)
    leave_list(m, row)
    m[RESERVED] -= blocks_at_most(m, row, m[BLOCK])
    overrun = 0
    if m[row + PHASE] == DECODE:
        stop_decoding(m, row)
        overrun = m[LAG]
    computed = m[row + COMPUTED]
    m[row + KNOWN] = computed + 1
    name_filled(m, row, computed)
    give_back(m, row, covering(computed + overrun, m[BLOCK]), computed, NOBODY)
    m[IS_BLOCKED] = 0
    end(m, row, FINISHED, m[NOW])


@compiled
def foresee(m: Memory, row: int, number: int) -> None:
    """A decoding sequence has its last token, which will be known when the next step has been planned."""
    m[m[ENDINGS_AT] + m[ENDINGS]] = number
    m[ENDINGS] += 1
    m[IS_BLOCKED] = 0
    if not m[row + IS_OVERRUN]:
        stop_decoding(m, row)
        m[row + KNOWN] = m[row + COMPUTED] + 1
        m[row + PHASE] = ENDING


@compiled
def finish_foreseen(m: Memory) -> None:
    """The step before is looked at: sequences that had their last token by then end, in the order of the running list."""
    for place in range(m[ENDINGS]):
        number = m[m[ENDINGS_AT] + place]
        row = row_of(m, number)
        if m[row + PHASE] == QUEUED:  # Preempted since.
            unqueue(m, row)
            end(m, row, FINISHED, m[NOW])
        else:
            finish(m, row, number)
    m[ENDINGS] = 0


@compiled
def finish_due(m: Memory) -> None:
    """Sequences whose last token is there end, in the order of the running list."""
    limit = (m[STEP] + 1) << 32
    while m[FINISHES] and m[m[FINISHES_AT]] < limit:
        key, number = m[m[FINISHES_AT]], m[m[FINISHES_AT] + 1]
        m[FINISHES] = heap.pop(m, m[FINISHES_AT], m[FINISHES])
        if is_due(m, key, number):
            if m[LAG]:
                foresee(m, row_of(m, number), number)
            else:
                finish(m, row_of(m, number), number)


@compiled
def unqueue(m: Memory, row: int) -> None:
    """A waiting request will not be served; what it held is no one's."""
    leave_queue(m, row)
    m[LOST_TOKENS] -= m[row + HIGH]
    run = m[row + RUN_NODE]
    if run != NOBODY:
        m[run + REFS] = NOBODY
        m[row + RUN_NODE] = NOBODY


@compiled
def drop(m: Memory, number: int, status: int) -> None:
    """A request leaves from wherever it is."""
    row = row_of(m, number)
    phase = m[row + PHASE]
    leave_list(m, row)
    if m[PARTIAL] == number:
        m[PARTIAL] = NOBODY
    if phase == QUEUED:
        unqueue(m, row)
    else:
        leave_running(m, row, number)
        if phase == DECODE:
            stop_decoding(m, row)
            m[row + KNOWN] = m[row + COMPUTED] + 1
        covered = m[row + COMPUTED] + m[row + SHARE]
        held = covering(covered, m[BLOCK])
        if m[SCHEDULING]:
            # Its whole context's blocks were taken at once, and what is in them has had no names.
            covered = m[row + COMPUTED]
            if phase != PREFILL or m[SCHEDULING] == SGLANG:
                held = covering(covered, m[BLOCK])
            else:
                held = covering(m[row + KNOWN], m[BLOCK])
            name_filled(m, row, covered)
        m[row + SHARE] = 0
        m[RESERVED] -= blocks_at_most(m, row, m[BLOCK])
        give_back(m, row, held, covered, NOBODY)
        m[IS_BLOCKED] = 0
    end(m, row, status, m[NOW])


@compiled
def first_decoding(m: Memory) -> int:
    """The first running request in the engine's order: what is partly prefilled comes last."""
    first = number = m[RUN_FIRST]
    while m[SCHEDULING] == SGLANG and number != NOBODY:
        if number != m[PARTIAL]:
            turn = m[row_of(m, number) + TURN]
            if first == m[PARTIAL] or turn < m[row_of(m, first) + TURN]:
                first = number
        number = m[row_of(m, number) + NEXT]
    return first


@compiled
def drop_all(m: Memory, status: int) -> None:
    """Everything that was sent and is not over ends so."""
    number = m[LIST_FIRST] if m[SCHEDULING] else NOBODY
    while number != NOBODY:
        after = m[row_of(m, number) + LATER_ONE]
        if m[row_of(m, number) + PHASE] != QUEUED:
            drop(m, number, status)
        number = after
    while m[RUNNING]:
        drop(m, first_decoding(m), status)
    while m[WAITING]:
        drop(m, first_waiting(m), status)


@compiled
def next_root(m: Memory) -> int:
    """The next request that waits for no other, or NOBODY; NEXT_NUMBER stands at it then."""
    while m[NEXT_NUMBER] < m[LOADED]:
        if m[row_of(m, m[NEXT_NUMBER]) + PARENT] == NOBODY:
            return m[NEXT_NUMBER]
        m[NEXT_NUMBER] += 1
    return NOBODY


@compiled
def next_send_ps(m: Memory) -> int:
    """When the next request is sent, as far as is known."""
    root = next_root(m)
    when = FOREVER if root == NOBODY else m[row_of(m, root) + SENT]
    if m[SENDS]:
        when = min(when, m[m[SENDS_AT]])
    return when


@compiled
def send_until(m: Memory, now_ps: int) -> None:
    """Requests sent up to and at an instant join the queue, by (time, number); what never fits ends at once."""
    while True:
        root = next_root(m)
        number, when = root, FOREVER
        if root != NOBODY:
            when = m[row_of(m, root) + SENT]
        if m[SENDS] and (m[m[SENDS_AT]] < when or (m[m[SENDS_AT]] == when and m[m[SENDS_AT] + 1] < root)):
            when, number = m[m[SENDS_AT]], m[m[SENDS_AT] + 1]
        if when > now_ps:
            return
        if number == root:
            m[NEXT_NUMBER] += 1
        else:
            m[SENDS] = heap.pop(m, m[SENDS_AT], m[SENDS])
        send(m, row_of(m, number), number, when)


@compiled
def send(m: Memory, row: int, number: int, when: int) -> None:
    """One request is sent."""
    m[row + SENT] = when
    if not m[row + FITS]:
        end(m, row, NEVER_FITS, when)
        return
    m[row + RANK] = (m[row + RANK] << 40) + m[SENT_COUNT]
    m[SENT_COUNT] += 1
    enter_list(m, row, number)
    for kind, column in enumerate((CANCEL, FIRST_DEADLINE, DEADLINE)):
        if m[row + column] >= 0:
            m[row + column] += when
            m[TIMERS] = heap.push(m, m[TIMERS_AT], m[TIMERS], m[row + column], kind * _KIND + number)
    append(m, row, number)


@compiled
def next_timer_ps(m: Memory) -> int:
    """When the next cancellation or deadline comes that is not void."""
    while m[TIMERS]:
        kind, number = divmod(m[m[TIMERS_AT] + 1], _KIND)
        row = row_of(m, number)
        is_met = kind == 1 and number >= m[BASE] and m[row + FIRST_TOKEN] != NOBODY
        if number >= m[BASE] and m[row + PHASE] != OVER and not is_met:
            return m[m[TIMERS_AT]]
        m[TIMERS] = heap.pop(m, m[TIMERS_AT], m[TIMERS])
    return FOREVER


@compiled
def withdraw_until(m: Memory, now_ps: int) -> None:
    """Cancellations and deadlines up to and at an instant take effect."""
    while m[TIMERS] and m[m[TIMERS_AT]] <= now_ps:
        when = m[m[TIMERS_AT]]
        kind, number = divmod(m[m[TIMERS_AT] + 1], _KIND)
        m[TIMERS] = heap.pop(m, m[TIMERS_AT], m[TIMERS])
        row = row_of(m, number)
        if number < m[BASE] or m[row + PHASE] == OVER:
            continue
        if kind == 1 and m[row + FIRST_TOKEN] != NOBODY and m[row + FIRST_TOKEN] <= when:
            continue
        drop(m, number, CANCELLED if kind == 0 else EXPIRED)
