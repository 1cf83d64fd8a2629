"""The run of one replica from event to event.

Between two events all running sequences decode, so the time of any number of steps, the blocks they take and the state they leave are
known in closed form.
"""

from __future__ import annotations

from vramledger.simulation.compiled.decoding import start_decoding
from vramledger.simulation.compiled.ending import (
    LIVELOCKED,
    drop_all,
    finish,
    finish_due,
    finish_foreseen,
    next_send_ps,
    next_timer_ps,
    send_until,
    withdraw_until,
)
from vramledger.simulation.compiled.holdings import name_filled
from vramledger.simulation.compiled.jit import compiled, entry
from vramledger.simulation.compiled.memory import (
    BEGUN,
    CHOSEN_AT,
    COMPUTED,
    COMPUTED_TOKENS,
    CUT_SHORT,
    DECODE_SEQ_PS,
    DECODED_TOKENS,
    DECODING,
    END_PS,
    ENDED,
    FIRST_TOKEN,
    FLOOR_PS,
    FOREVER,
    HIGH,
    IN_FLIGHT,
    IS_BLOCKED,
    IS_OF_MANY,
    IS_PREFILL,
    IS_WALKED,
    KNOWN,
    KV_TOKEN_PS,
    LAG,
    LAST_DECODE_TURN,
    LOST_TOKENS,
    NEEDS_MORE,
    NEXT,
    NOBODY,
    NOW,
    OUTPUT,
    OVER,
    OVERHEAD_PS,
    PAIR_PS,
    PHASE,
    PLAN_DECODES,
    PLAN_KV,
    PLAN_PAIRS,
    PLAN_PREEMPTED,
    PLAN_TOKENS,
    PREFILLING,
    PREFILLS_AT,
    PROMPT,
    RECOMPUTED,
    RECOMPUTED_TOKENS,
    REPEATED_TOKENS,
    RUN_FIRST,
    SAMPLED_WAITING,
    SCHEDULING,
    SGLANG,
    SHARE,
    STEP,
    STEPS,
    TIME_LIMIT,
    TOKEN_PS,
    TURN,
    UNDECIDED,
    WAITING,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.sampling import ending_tokens, sample_before
from vramledger.simulation.compiled.sglang import schedule_sglang
from vramledger.simulation.compiled.stretch import decode, uniform_steps
from vramledger.simulation.compiled.trtllm import schedule_trtllm
from vramledger.simulation.compiled.vllm import schedule


@entry
def advance(m: Memory, until_ps: int) -> int:
    """Runs until all is over, or until an instant at and after which requests may be sent that are not loaded yet."""
    while True:
        now_ps = m[NOW]
        if now_ps >= until_ps:
            return NEEDS_MORE
        # Who came after the step that runs was begun came after the next one was planned.
        send_until(m, m[BEGUN] if m[IN_FLIGHT] else now_ps)
        withdraw_until(m, now_ps)
        steps = uniform_steps(m, until_ps)
        if steps:
            decode(m, steps)
            continue
        while True:
            if not m[SCHEDULING]:
                schedule(m)
            elif m[SCHEDULING] == SGLANG:
                schedule_sglang(m)
            elif not schedule_trtllm(m):
                return UNDECIDED
            count_plan(m)
            m[SAMPLED_WAITING] = m[WAITING]
            if m[PLAN_TOKENS] and is_livelocked(m):
                if m[LAG]:
                    return UNDECIDED
                drop_all(m, LIVELOCKED)
                continue
            if m[IN_FLIGHT] and not m[PLAN_TOKENS]:
                # Nothing more to plan before the outcome of the step before is known.
                m[IN_FLIGHT] = 0
                send_until(m, now_ps)
                finish_foreseen(m)
                continue
            if m[PLAN_TOKENS] or not m[PLAN_PREEMPTED]:
                break
        if m[PLAN_TOKENS]:
            then_ps = now_ps + plan_ps(m)
            sample_before(m, min(then_ps, m[TIME_LIMIT] + 1))
            if m[LAG]:
                finish_foreseen(m)
                m[IN_FLIGHT] = 1
                m[BEGUN] = now_ps
            if then_ps > m[TIME_LIMIT]:
                return stop_at_limit(m)
            end_step(m, then_ps)
            continue
        then_ps = min(next_send_ps(m), next_timer_ps(m))
        if then_ps >= until_ps and until_ps != FOREVER:
            return NEEDS_MORE
        if then_ps == FOREVER and m[WAITING] and not m[IS_OF_MANY]:
            # Nothing will come that could let the head of the queue in.
            drop_all(m, LIVELOCKED)
            then_ps = next_send_ps(m)
        if then_ps == FOREVER:
            m[END_PS] = now_ps
            sample_before(m, now_ps + 1)
            return ENDED
        if then_ps > m[TIME_LIMIT]:
            return stop_at_limit(m)
        sample_before(m, then_ps)
        m[NOW] = then_ps


@compiled
def stop_at_limit(m: Memory) -> int:
    """The run's time is over while a step runs, or while nothing does."""
    m[END_PS] = m[TIME_LIMIT]
    sample_before(m, m[TIME_LIMIT] + 1)
    send_until(m, m[TIME_LIMIT])
    return CUT_SHORT


@compiled
def count_plan(m: Memory) -> None:
    """The plan's sums, and what was computed before and is computed again."""
    tokens = decodes = m[PLAN_DECODES]
    kv, pairs = m[PLAN_KV], 0
    has_passed_decodes = decodes == 0
    for place in range(m[PREFILLING]):
        row = row_of(m, m[m[PREFILLS_AT] + place])
        share = m[row + SHARE]
        if share == 0:
            continue
        if not has_passed_decodes and m[row + TURN] > m[LAST_DECODE_TURN]:
            m[REPEATED_TOKENS] = 0
            has_passed_decodes = True
        before = m[row + COMPUTED]
        after = before + share
        tokens += share
        kv += before
        if share == 1:
            decodes += 1
        else:
            pairs += share * (before + share // 2)
        again = max(0, min(after, m[row + HIGH]) - before)
        m[row + HIGH] = max(after, m[row + HIGH])
        m[row + RECOMPUTED] += again
        m[RECOMPUTED_TOKENS] += again
        m[REPEATED_TOKENS] = m[REPEATED_TOKENS] + again if again == share else 0
    if not has_passed_decodes:
        m[REPEATED_TOKENS] = 0
    m[PLAN_TOKENS] = tokens
    m[PLAN_DECODES] = decodes
    m[PLAN_KV] = kv
    m[PLAN_PAIRS] = pairs
    m[STEPS] += tokens > 0
    m[COMPUTED_TOKENS] += tokens


@compiled
def is_livelocked(m: Memory) -> bool:
    """More than twice all that can be lost was computed again with nothing new between (`reference.progress`)."""
    if not m[PLAN_PREEMPTED] or not m[REPEATED_TOKENS]:
        return False
    lost = m[LOST_TOKENS] + m[DECODED_TOKENS] + m[DECODING]
    for place in range(m[PREFILLING]):
        lost += m[row_of(m, m[m[PREFILLS_AT] + place]) + HIGH]
    lost += ending_tokens(m)
    return m[REPEATED_TOKENS] > 2 * lost


@compiled
def plan_ps(m: Memory) -> int:
    """The step's time (`StepModel.step_ps`)."""
    return (
        m[OVERHEAD_PS]
        + max(m[FLOOR_PS], m[PLAN_TOKENS] * m[TOKEN_PS])
        + m[PLAN_DECODES] * m[DECODE_SEQ_PS]
        + m[PLAN_KV] * m[KV_TOKEN_PS]
        + m[PLAN_PAIRS] * m[PAIR_PS] // 1024
    )


@compiled
def end_step(m: Memory, now_ps: int) -> None:
    """What was scheduled is computed."""
    m[NOW] = now_ps
    if m[IS_PREFILL]:
        end_prefill(m)
        return
    m[STEP] += 1
    m[DECODED_TOKENS] += m[DECODING]
    if m[SCHEDULING]:
        for place in range(m[PREFILLING]):
            row = row_of(m, m[m[PREFILLS_AT] + place])
            if m[row + COMPUTED] + m[row + SHARE] == m[row + KNOWN]:
                name_filled(m, row, m[row + KNOWN])
        finish_due(m)
    kept = 0
    for place in range(m[PREFILLING]):
        number = m[m[PREFILLS_AT] + place]
        row = row_of(m, number)
        m[row + COMPUTED] += m[row + SHARE]
        m[row + SHARE] = 0
        if m[row + COMPUTED] < m[row + KNOWN]:
            m[m[PREFILLS_AT] + kept] = number
            kept += 1
            continue
        if m[row + FIRST_TOKEN] == NOBODY:
            m[row + FIRST_TOKEN] = now_ps
        start_decoding(m, row, number)
    m[PREFILLING] = kept
    if m[IS_WALKED]:
        m[IS_WALKED] = 0
        number = m[RUN_FIRST]
        while number != NOBODY:
            m[row_of(m, number) + SHARE] = 0
            number = m[row_of(m, number) + NEXT]
    finish_due(m)


@compiled
def end_prefill(m: Memory) -> None:
    """A batch of prefills alone is computed: first those leave that have all their tokens, then the others' blocks get names."""
    kept, done, at = 0, 0, m[CHOSEN_AT]
    is_new_batch = m[DECODING] == 0
    for place in range(m[PREFILLING]):
        number = m[m[PREFILLS_AT] + place]
        row = row_of(m, number)
        m[row + COMPUTED] += m[row + SHARE]
        if m[row + COMPUTED] == m[row + KNOWN]:
            m[at + done] = number
            done += 1
        else:
            is_new_batch |= m[row + SHARE] > 0
            m[m[PREFILLS_AT] + kept] = number
            kept += 1
        m[row + SHARE] = 0
    m[PREFILLING] = kept
    if is_new_batch:
        m[IS_BLOCKED] = 0
    m[IS_PREFILL] = 0
    for is_end in (True, False):
        for place in range(done):
            number = m[at + place]
            row = row_of(m, number)
            if m[row + PHASE] == OVER or is_end != (m[row + KNOWN] == m[row + PROMPT] + m[row + OUTPUT] - 1):
                continue
            if m[row + FIRST_TOKEN] == NOBODY:
                m[row + FIRST_TOKEN] = m[NOW]
            if is_end:
                start_decoding(m, row, number)
                finish(m, row, number)
            else:
                name_filled(m, row, m[row + KNOWN])
                start_decoding(m, row, number)
