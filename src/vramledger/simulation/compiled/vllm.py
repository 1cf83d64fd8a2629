"""vLLM's scheduling of one step (rules: `simulation.schedulers.vllm`).

Sequences that decode are served together where their order does not matter: where all of them fit into the budget, every
one that prefills stands behind them, and there are blocks for all.
"""

from __future__ import annotations

from vramledger.simulation.compiled.decoding import (
    await_fill,
    committed,
    name_due,
    needed_by_decodes,
    passed_over,
    stop_decoding,
)
from vramledger.simulation.compiled.holdings import covering, give_back, look_up, name_filled, open_held
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    ALONE_UNBOUNDED,
    BLOCK,
    BUDGET,
    CHUNKED,
    COMPUTED,
    DECODE,
    DECODED_TOKENS,
    DECODING,
    ENDING,
    FREE,
    GOES_ON,
    HIGH,
    IS_BLOCKED,
    IS_WALKED,
    KNOWN,
    LAG,
    LAST_DECODE_TURN,
    LOST_TOKENS,
    MAX_SEQS,
    NAMED,
    NEXT,
    NOBODY,
    PHASE,
    PLAN_DECODES,
    PLAN_KV,
    PLAN_PREEMPTED,
    PREEMPTED,
    PREEMPTIONS,
    PREFILL,
    PREFILLING,
    PREFILLS_AT,
    PREVIOUS,
    PRIORITY,
    RANK,
    RESERVE_FULL,
    RUN_FIRST,
    RUN_LAST,
    RUNNING,
    SENT,
    SHARE,
    STEP,
    THRESHOLD,
    TURN,
    WAITING,
    WATERMARK,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.pool import take
from vramledger.simulation.compiled.queue import first_waiting, put_back, take_first
from vramledger.simulation.compiled.running import begin_prefill, leave_running


@compiled
def long_prefill_tokens(m: Memory) -> int:
    """Most tokens of one prefill in a step, 0 for no bound."""
    if m[ALONE_UNBOUNDED] and m[RUNNING] + m[WAITING] <= 1:
        return 0
    return m[THRESHOLD]


@compiled
def schedule(m: Memory) -> None:
    """Decides and allocates a step: SHARE of what prefills, and the plan's sums of what decodes."""
    m[PLAN_PREEMPTED] = 0
    threshold = long_prefill_tokens(m)
    budget = serve_together(m, threshold)
    if budget < 0:
        budget = serve_one_by_one(m, threshold)
    if not m[PLAN_PREEMPTED]:
        admit(m, budget, threshold)


@compiled
def share_of_prefill(m: Memory, row: int, budget: int, threshold: int) -> int:
    """Tokens that a sequence computes of what it still lacks."""
    tokens = m[row + KNOWN] - m[row + COMPUTED]
    if threshold and tokens > threshold:
        tokens = threshold
    return min(tokens, budget)


@compiled
def serve_together(m: Memory, threshold: int) -> int:
    """Serves the running sequences, if their order does not matter; tokens left, or -1 with nothing done."""
    block = m[BLOCK]
    budget = m[BUDGET] - m[DECODING]
    if budget < 0:
        return -1
    number = m[RUN_LAST]
    for _ in range(m[PREFILLING]):
        row = row_of(m, number)
        if m[row + PHASE] != PREFILL:
            return -1
        number = m[row + PREVIOUS]
    needed = needed_by_decodes(m, 1)
    for place in range(m[PREFILLING]):
        row = row_of(m, m[m[PREFILLS_AT] + place])
        tokens = share_of_prefill(m, row, budget, threshold)
        m[row + SHARE] = tokens
        budget -= tokens
        computed = m[row + COMPUTED]
        needed += covering(computed + tokens, block) - covering(computed, block)
    if needed > m[FREE]:
        return -1
    take(m, needed)
    name_due(m, ((m[STEP] + 1) << 32) - 1)
    for place in range(m[PREFILLING]):
        row = row_of(m, m[m[PREFILLS_AT] + place])
        name_filled(m, row, m[row + COMPUTED] + m[row + SHARE])
    m[PLAN_DECODES] = m[DECODING]
    m[PLAN_KV] = m[DECODED_TOKENS]
    m[LAST_DECODE_TURN] = 0 if m[DECODING] else NOBODY
    return budget


@compiled
def serve_one_by_one(m: Memory, threshold: int) -> int:
    """Serves the running sequences in order, preempting where blocks run out; tokens left."""
    block = m[BLOCK]
    budget = m[BUDGET]
    number = m[RUN_FIRST]
    while number != NOBODY:
        m[row_of(m, number) + SHARE] = 0
        number = m[row_of(m, number) + NEXT]
    number = m[RUN_FIRST]
    while number != NOBODY and budget > 0:
        row = row_of(m, number)
        if m[row + PHASE] == ENDING:
            number = m[row + NEXT]
            continue
        computed, tokens = m[row + COMPUTED] + m[STEP], 1
        if m[row + PHASE] == PREFILL:
            computed = m[row + COMPUTED]
            tokens = share_of_prefill(m, row, budget, threshold)
        needed = covering(computed + tokens, block) - covering(computed, block)
        victim = NOBODY
        while needed > m[FREE] and victim != number:
            victim = victim_of(m)
            budget += m[row_of(m, victim) + SHARE]
            preempt(m, victim)
        if victim == number:
            if not m[GOES_ON]:
                break
            number = m[row + NEXT]  # Out of the list, it still knows who was behind it.
            continue
        take(m, needed)
        named = m[row + NAMED]
        is_decode = m[row + PHASE] == DECODE
        name_filled(m, row, computed + tokens - (m[LAG] if is_decode else 0))
        if is_decode and m[row + NAMED] > named:
            await_fill(m, row, number)
        m[row + SHARE] = tokens
        budget -= tokens
        number = m[row + NEXT]
    m[IS_WALKED] = 1
    count_decodes(m, budget < m[BUDGET])
    return budget


@compiled
def count_decodes(m: Memory, is_step: bool) -> None:
    """The plan's sums of what decodes, after sequences were served one by one; who was not served stays behind.

    Where no one was served there is no step to stay behind of.
    """
    m[PLAN_DECODES] = m[PLAN_KV] = 0
    m[LAST_DECODE_TURN] = NOBODY
    number = m[RUN_FIRST]
    while number != NOBODY:
        row = row_of(m, number)
        if m[row + PHASE] == DECODE:
            if m[row + SHARE]:
                m[PLAN_DECODES] += 1
                m[PLAN_KV] += m[row + COMPUTED] + m[STEP]
                m[LAST_DECODE_TURN] = m[row + TURN]
            elif is_step:
                passed_over(m, row, number)
        number = m[row + NEXT]


@compiled
def victim_of(m: Memory) -> int:
    """Who is preempted: the last of the running list, or the worst by (priority, time sent), the first of equals."""
    if not m[PRIORITY]:
        return m[RUN_LAST]
    victim = number = m[RUN_FIRST]
    while number != NOBODY:
        row, worst = row_of(m, number), row_of(m, victim)
        rank, worst_rank = m[row + RANK] >> 40, m[worst + RANK] >> 40
        if rank > worst_rank or (rank == worst_rank and m[row + SENT] > m[worst + SENT]):
            victim = number
        number = m[row + NEXT]
    return victim


@compiled
def preempt(m: Memory, number: int) -> None:
    """By recompute: its blocks go, full ones stay findable for it, and it waits again."""
    row = row_of(m, number)
    leave_running(m, row, number)
    if m[row + PHASE] == DECODE:
        stop_decoding(m, row)
        m[row + KNOWN] = m[row + COMPUTED] + 1
    computed = m[row + COMPUTED]
    share = m[row + SHARE]
    give_back(m, row, covering(computed + share, m[BLOCK]), committed(m, row) + share, number)
    m[row + HIGH] = max(m[row + HIGH], computed)
    m[row + COMPUTED] = 0
    m[row + SHARE] = 0
    m[row + PREEMPTED] += 1
    m[PREEMPTIONS] += 1
    m[PLAN_PREEMPTED] += 1
    m[LOST_TOKENS] += m[row + HIGH]
    m[IS_BLOCKED] = 0
    put_back(m, row, number)


@compiled
def admit(m: Memory, budget: int, threshold: int) -> None:
    """From the head of the queue, until tokens, places or blocks run out. Notes whether only a change could let the head in."""
    if m[IS_BLOCKED]:
        return
    block = m[BLOCK]
    is_stopped = False
    while m[WAITING] and budget > 0 and not is_stopped:
        if m[RUNNING] >= m[MAX_SEQS]:
            is_stopped = True
            break
        number = first_waiting(m)
        row = row_of(m, number)
        known = m[row + KNOWN]
        hits, unheld = look_up(m, row)
        tokens = known - hits * block
        if threshold and tokens > threshold:
            tokens = threshold
        if not m[CHUNKED] and tokens > budget:
            is_stopped = True
            break
        tokens = min(tokens, budget)
        room = m[FREE] - unheld - (m[WATERMARK] if m[RUNNING] else 0)
        needed = covering(hits * block + tokens, block) - hits
        whole = covering(known, block) - hits if m[RESERVE_FULL] else needed
        if max(whole, needed) > room:
            is_stopped = True
            break
        take_first(m)
        enter(m, row, number, hits, needed, tokens)
        budget -= tokens
    if is_stopped and not m[PREFILLING]:
        m[IS_BLOCKED] = 1


@compiled
def enter(m: Memory, row: int, number: int, hits: int, new_blocks: int, tokens: int) -> None:
    """A waiting request runs."""
    computed = hits * m[BLOCK]
    open_held(m, row, hits, new_blocks)
    name_filled(m, row, computed + tokens)
    begin_prefill(m, row, number, computed, tokens)
