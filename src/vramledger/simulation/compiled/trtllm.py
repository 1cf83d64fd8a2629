"""TensorRT-LLM's scheduling of one step, and that of a static batch (rules: `simulation.schedulers.trtllm`, `static_batch`)."""

from __future__ import annotations

from vramledger.simulation.compiled.arrivals import blocks_at_most
from vramledger.simulation.compiled.decoding import needed_by_decodes, passed_over
from vramledger.simulation.compiled.holdings import covering, look_up, open_held
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    BLOCK,
    BUDGET,
    CHOSEN_AT,
    CHUNKED,
    COMPUTED,
    DECODE,
    DECODED_TOKENS,
    DECODING,
    FREE,
    HAS_MIXED,
    IS_BLOCKED,
    KNOWN,
    LAST_DECODE_TURN,
    MOST_UTILIZATION,
    NOBODY,
    PHASE,
    PLAN_DECODES,
    PLAN_KV,
    PLAN_PREEMPTED,
    PREFILL,
    PREFILLING,
    PREFILLS_AT,
    QUEUED,
    RESERVED,
    SCHEDULING,
    SHARE,
    STATIC_BATCH,
    STEP,
    TURN,
    WAITING,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.pool import take
from vramledger.simulation.compiled.queue import leave_queue
from vramledger.simulation.compiled.running import enter_running, note_admission
from vramledger.simulation.compiled.trtllm_choice import fitting_to_the_end, fitting_to_the_next_step


@compiled
def schedule_trtllm(m: Memory) -> bool:
    """Decides and allocates a step; False where what was found to fit does not."""
    m[PLAN_PREEMPTED] = 0
    m[HAS_MIXED] = 0
    chosen = 0
    if m[SCHEDULING] == STATIC_BATCH and m[DECODING]:
        m[IS_BLOCKED] = m[WAITING] > 0
    elif m[SCHEDULING] == MOST_UTILIZATION:
        chosen = fitting_to_the_next_step(m)
    else:
        chosen = fitting_to_the_end(m)
    served = cut(m, chosen, m[BUDGET] - (0 if m[HAS_MIXED] else m[DECODING]))
    needed = 0
    if m[HAS_MIXED]:
        needed = count_generating(m, served)
    else:
        m[PLAN_DECODES] = m[DECODING]
        m[PLAN_KV] = m[DECODED_TOKENS]
        if m[DECODING]:
            needed = needed_by_decodes(m, 1)
    if needed > m[FREE]:
        return False
    take(m, needed)
    m[LAST_DECODE_TURN] = NOBODY  # Contexts come behind all that generates.
    tokens = m[PLAN_DECODES]
    for place in range(served):
        number = m[m[CHOSEN_AT] + place]
        row = row_of(m, number)
        if m[row + PHASE] == QUEUED and m[row + SHARE]:
            start(m, row, number)
        tokens += m[row + SHARE]
    if m[HAS_MIXED] and tokens:
        for place in range(served, chosen):
            number = m[m[CHOSEN_AT] + place]
            if m[row_of(m, number) + PHASE] == DECODE:
                passed_over(m, row_of(m, number), number)
    return True


@compiled
def count_generating(m: Memory, served: int) -> int:
    """The plan's sums of what generates among those served; the blocks that it needs."""
    block, needed = m[BLOCK], 0
    m[PLAN_DECODES] = m[PLAN_KV] = 0
    for place in range(served):
        row = row_of(m, m[m[CHOSEN_AT] + place])
        if m[row + PHASE] == DECODE:
            computed = m[row + COMPUTED] + m[STEP]
            needed += covering(computed + 1, block) - covering(computed, block)
            m[PLAN_DECODES] += 1
            m[PLAN_KV] += computed
    return needed


@compiled
def cut(m: Memory, chosen: int, left: int) -> int:
    """Tokens of each context in this step, into SHARE; how many of the chosen are served."""
    block, largest = m[BLOCK], m[BUDGET]
    for place in range(m[PREFILLING]):
        m[row_of(m, m[m[PREFILLS_AT] + place]) + SHARE] = 0
    for place in range(chosen):
        row = row_of(m, m[m[CHOSEN_AT] + place])
        if m[row + PHASE] == DECODE:
            if left < 1:
                return place
            left -= 1
            continue
        tokens, ready = m[row + KNOWN] - m[row + COMPUTED], 0
        if m[row + PHASE] == QUEUED:
            hits, _ = look_up(m, row)
            ready = hits * block
        if not m[CHUNKED]:
            if tokens - ready > left:
                return place
            m[row + SHARE] = tokens - ready
            left -= tokens - ready
            continue
        size = tokens if tokens - ready <= left else left
        if cost_of(size, tokens, ready) > largest:
            size = min(largest, tokens)
        if size < tokens:
            size = size // block * block
        m[row + SHARE] = cost_of(size, tokens, ready)
        left -= m[row + SHARE]
    return chosen


@compiled
def cost_of(size: int, tokens: int, ready: int) -> int:
    """Tokens that a chunk of `size` computes of a context."""
    if size == 0 or ready <= 0 or ready + size < tokens:
        return size
    return max(0, tokens - ready)


@compiled
def start(m: Memory, row: int, number: int) -> None:
    """A request gets the blocks of its whole context, unless those that it was to share went in this step."""
    block = m[BLOCK]
    hits, unheld = look_up(m, row)
    new_blocks = covering(m[row + KNOWN], block) - hits
    share = min(m[row + SHARE], m[row + KNOWN] - hits * block)
    m[row + SHARE] = 0
    if new_blocks + unheld > m[FREE]:
        return
    leave_queue(m, row)
    open_held(m, row, hits, new_blocks)
    m[row + PHASE] = PREFILL
    m[row + COMPUTED] = hits * block
    m[row + SHARE] = share
    enter_running(m, row, number)
    m[RESERVED] += blocks_at_most(m, row, block)
    place = m[PREFILLING]
    while place and m[row_of(m, m[m[PREFILLS_AT] + place - 1]) + TURN] > m[row + TURN]:
        m[m[PREFILLS_AT] + place] = m[m[PREFILLS_AT] + place - 1]
        place -= 1
    m[m[PREFILLS_AT] + place] = number
    m[PREFILLING] += 1
    note_admission(m, row, hits * block)
