"""SGLang's prefill batch: who joins it, with how many tokens (rules: `schedulers.sglang_admission.PrefillPass`)."""

from __future__ import annotations

from vramledger.simulation.compiled.holdings import covering, look_up, open_held
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    BLOCK,
    BUDGET,
    CHOSEN_AT,
    CHUNKED,
    CLIP,
    COMMITTED,
    COMPUTED,
    DECODE,
    DECODING,
    EXPECTED,
    FOREVER,
    FREE,
    IS_BLOCKED,
    KNOWN,
    MAX_PREFILL,
    MAX_SEQS,
    NEXT,
    NOBODY,
    PARTIAL,
    PHASE,
    PROMPT,
    RUN_FIRST,
    SHARE,
    TURN,
    WAIT_FIRST,
    WAITING,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.pool import take
from vramledger.simulation.compiled.queue import leave_queue
from vramledger.simulation.compiled.running import begin_prefill
from vramledger.simulation.compiled.token_ratio import reserved_tokens


@compiled
def listed_decodes(m: Memory) -> int:
    """The decoding requests in their order, into the chosen; how many."""
    count, at = 0, m[CHOSEN_AT]
    number = m[RUN_FIRST]
    while number != NOBODY:
        row = row_of(m, number)
        if m[row + PHASE] == DECODE:
            place = count
            while place and m[row_of(m, m[at + place - 1]) + TURN] > m[row + TURN]:
                m[at + place] = m[at + place - 1]
                place -= 1
            m[at + place] = number
            count += 1
        number = m[row + NEXT]
    return count


@compiled
def prefill(m: Memory) -> int:
    """Builds the batch: SHARE of each; how many there are."""
    places, page, partial = m[MAX_SEQS] - m[DECODING], m[BLOCK], m[PARTIAL]
    if partial == NOBODY:
        if m[IS_BLOCKED] or not m[WAITING]:
            return 0
        if places <= 0:
            m[IS_BLOCKED] = 1
            return 0
    available, reserved_now = m[FREE] * page, 0
    reserved = reserved_tokens(m, listed_decodes(m))
    input_left, chunk_left = m[MAX_PREFILL], m[BUDGET] if m[CHUNKED] else FOREVER
    charged, batch = 0, 0
    if partial != NOBODY:
        row = row_of(m, partial)
        extend, computed = m[row + KNOWN] - m[row + COMPUTED], m[row + COMPUTED]
        left = min(chunk_left, int(available - reserved))
        if left <= 0:
            left = chunk_left
        tokens = min(extend, left)
        paged = covering(tokens, page) * page
        reserved_now += paged + page
        reserved += paged + page + (0 if extend > left else min(m[row + EXPECTED], m[CLIP]))
        input_left -= paged
        chunk_left -= paged
        charged += 1
        needed = covering(computed + tokens, page) - covering(computed, page)
        if needed <= m[FREE]:
            take(m, needed)
            m[row + SHARE] = tokens
            batch += 1
            if extend <= left:
                m[PARTIAL] = NOBODY
    while m[WAITING]:
        has_room = available - reserved > 0 and available > reserved_now
        if has_room and (input_left <= 0 or chunk_left <= 0):
            break
        if batch >= places:
            m[IS_BLOCKED] = 1
        if m[IS_BLOCKED]:
            break
        number = m[WAIT_FIRST]
        row = row_of(m, number)
        hits, unheld = look_up(m, row)
        ready = hits * page
        extend = m[row + KNOWN] - ready
        output_left = min(max(m[row + EXPECTED] - (m[row + KNOWN] - m[row + PROMPT]), 0), m[CLIP])
        if not extend + output_left + page < available - reserved - unheld * page:
            m[IS_BLOCKED] = batch > 0 or m[DECODING] > 0
            break
        paged = covering(extend, page) * page
        if not m[CHUNKED] and charged and paged >= input_left:
            break
        tokens, is_partial = extend, m[CHUNKED] > 0 and paged > chunk_left
        if is_partial:
            tokens = (ready + chunk_left // page * page) // page * page - ready
            if tokens <= 0:
                break
        paged = covering(tokens, page) * page
        available -= unheld * page
        reserved_now += paged + page
        reserved += paged + page + (0 if is_partial else min(m[row + EXPECTED], m[CLIP]))
        input_left -= paged
        chunk_left -= paged
        charged += 1
        new_blocks = covering(ready + tokens, page) - hits
        if new_blocks + unheld > m[FREE]:
            m[IS_BLOCKED] = batch > 0 or m[DECODING] > 0
            break
        enter(m, row, number, hits, new_blocks, tokens)
        batch += 1
        if is_partial:
            m[PARTIAL] = number
        if available - reserved <= 0 or available <= reserved_now:
            m[IS_BLOCKED] = 1
            break
    return batch


@compiled
def enter(m: Memory, row: int, number: int, hits: int, new_blocks: int, tokens: int) -> None:
    """A waiting request joins the batch."""
    computed = hits * m[BLOCK]
    leave_queue(m, row)
    open_held(m, row, hits, new_blocks)
    m[row + COMMITTED] = computed
    begin_prefill(m, row, number, computed, tokens)
