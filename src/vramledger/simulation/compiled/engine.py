"""The run of one replica from event to event.

Between two events all running sequences decode, so the time of any number of steps, the blocks they take and the state they leave are
known in closed form.
"""

from __future__ import annotations

import math

from vramledger.simulation.compiled import heap
from vramledger.simulation.compiled.ending import (
    LIVELOCKED,
    drop_all,
    finish,
    finish_foreseen,
    foresee,
    next_send_ps,
    next_timer_ps,
    send_until,
    withdraw_until,
)  # fmt: skip
from vramledger.simulation.compiled.holdings import (
    is_due,
    is_to_fill,
    name_due,
    needed_by_decodes,
    start_decoding,
)  # fmt: skip
from vramledger.simulation.compiled.jit import compiled, entry
from vramledger.simulation.compiled.memory import (
    AT,
    BEGUN,
    BLOCK,
    BUDGET,
    CACHED,
    COMPUTED,
    COMPUTED_TOKENS,
    DECODE_SEQ_PS,
    DECODED_TOKENS,
    DECODING,
    END_PS,
    ENDED,
    ENDING,
    ENDINGS,
    ENDINGS_AT,
    EXTRA_REFS,
    FILLS,
    FILLS_AT,
    FINDABLE,
    FINISHES,
    FINISHES_AT,
    FIRST_TOKEN,
    FLOOR_PS,
    FOREVER,
    FREE,
    HAS_TIMERS,
    HIGH,
    IN_FLIGHT,
    IS_BLOCKED,
    IS_WALKED,
    KNOWN,
    KV_TOKEN_PS,
    LAG,
    LAST_DECODE_TURN,
    LOGICAL,
    LOST_TOKENS,
    NEEDS_MORE,
    NEXT,
    NOBODY,
    NOW,
    OVERHEAD_PS,
    PAIR_PS,
    PHASE,
    PHYSICAL,
    PLAN_DECODES,
    PLAN_KV,
    PLAN_PAIRS,
    PLAN_PREEMPTED,
    PLAN_TOKENS,
    PREFILLING,
    PREFILLS_AT,
    PRIORITY,
    RECOMPUTED,
    RECOMPUTED_TOKENS,
    REPEATED_TOKENS,
    RUN_FIRST,
    RUNNING,
    RUNNING_NOW,
    SAMPLE_COLUMNS,
    SAMPLE_LIMIT,
    SAMPLE_SPACING,
    SAMPLED_WAITING,
    SAMPLES,
    SAMPLES_AT,
    SHARE,
    STEP,
    STEPS,
    TIME_LIMIT,
    TIMERS,
    TOKEN_PS,
    TURN,
    UNDECIDED,
    UNUSED,
    USABLE,
    USED,
    WAITING,
    WAITING_NOW,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.pool import take
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
            schedule(m)
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
        if then_ps == FOREVER and m[WAITING]:
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
    return ENDED


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
    m[STEP] += 1
    m[DECODED_TOKENS] += m[DECODING]
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
def decode(m: Memory, steps: int) -> None:
    """Steps in which all running sequences decode and nothing else happens before their end."""
    count = m[DECODING]
    take(m, needed_by_decodes(m, steps))
    m[BEGUN] = m[NOW] + steps_ps(m, steps - 1)
    m[NOW] += steps_ps(m, steps)
    m[STEP] += steps
    m[DECODED_TOKENS] += steps * count
    m[STEPS] += steps
    m[COMPUTED_TOKENS] += steps * count
    m[REPEATED_TOKENS] = 0
    m[SAMPLED_WAITING] = m[WAITING]
    name_due(m, (m[STEP] << 32) - 1)
    finish_due(m)


@compiled
def first_step_ps(m: Memory) -> int:
    """The time of the next step, if it only decodes."""
    count = m[DECODING]
    return (
        m[OVERHEAD_PS]
        + max(m[FLOOR_PS], count * m[TOKEN_PS])
        + count * m[DECODE_SEQ_PS]
        + m[DECODED_TOKENS] * m[KV_TOKEN_PS]
    )


@compiled
def steps_ps(m: Memory, steps: int) -> int:
    """The time of so many steps that only decode (`StepModel.decode_steps_ps`)."""
    growth = m[DECODING] * m[KV_TOKEN_PS]
    return steps * first_step_ps(m) + steps * (steps - 1) // 2 * growth


@compiled
def steps_to_reach(m: Memory, duration_ps: int, most: int) -> int:
    """The least number of decode steps that take so long, or `most` if that is less."""
    if duration_ps <= 0:
        return 0
    if steps_ps(m, most) < duration_ps:
        return most
    first = first_step_ps(m)
    growth = m[DECODING] * m[KV_TOKEN_PS]
    linear = first - 0.5 * growth
    steps = min(
        most, int(2.0 * duration_ps / (linear + math.sqrt(linear * linear + 2.0 * growth * duration_ps)))
    )
    while steps_ps(m, steps) < duration_ps:
        steps += 1
    while steps > 0 and steps_ps(m, steps - 1) >= duration_ps:
        steps -= 1
    return steps


@compiled
def uniform_steps(m: Memory, until_ps: int) -> int:
    """Steps that can be done at once, up to and including the next one at whose end something happens; 0 if the next step is special."""
    if m[PREFILLING] or m[ENDINGS] or not m[DECODING] or m[DECODING] > m[BUDGET]:
        return 0
    if m[WAITING] and not m[IS_BLOCKED]:
        return 0
    now_ps = m[NOW]
    while not is_due(m, m[m[FINISHES_AT]], m[m[FINISHES_AT] + 1]):
        m[FINISHES] = heap.pop(m, m[FINISHES_AT], m[FINISHES])
    steps = (m[m[FINISHES_AT]] >> 32) - m[STEP]
    if m[WAITING] and m[FILLS]:
        # A block that gets its name may be what the head of the queue lacks.
        while m[FILLS] and not is_to_fill(m, m[m[FILLS_AT]], m[m[FILLS_AT] + 1]):
            m[FILLS] = heap.pop(m, m[FILLS_AT], m[FILLS])
        if m[FILLS]:
            steps = min(steps, (m[m[FILLS_AT]] >> 32) - m[STEP])
            if steps == 0:
                m[IS_BLOCKED] = 0
                return 0
    horizon_ps = until_ps
    if m[TIMERS]:
        horizon_ps = min(horizon_ps, next_timer_ps(m))
    if horizon_ps < FOREVER:
        steps = steps_to_reach(m, horizon_ps - now_ps, steps)
    if not m[WAITING] or m[PRIORITY] or m[HAS_TIMERS]:
        send_ps = next_send_ps(m)
        if send_ps < FOREVER:
            steps = min(steps, steps_to_reach(m, send_ps - now_ps, steps) + m[LAG])
    # A step in which an instant of the samples lies, or the run's end, is looked at by itself.
    look_ps = min(m[SAMPLES] * m[SAMPLE_SPACING], m[TIME_LIMIT])
    steps = min(steps, max(0, steps_to_reach(m, look_ps + 1 - now_ps, steps + 1) - 1))
    if needed_by_decodes(m, steps) > m[FREE]:
        low, high = 0, steps
        while high - low > 1:
            middle = (low + high) // 2
            if needed_by_decodes(m, middle) > m[FREE]:
                high = middle
            else:
                low = middle
        steps = low
    return steps


@compiled
def sample_before(m: Memory, until_ps: int) -> None:
    """Keeps the state that the last scheduling left for every instant before `until_ps`."""
    while m[SAMPLES] * m[SAMPLE_SPACING] < until_ps:
        logical = m[DECODED_TOKENS] + m[DECODING]
        for place in range(m[PREFILLING]):
            row = row_of(m, m[m[PREFILLS_AT] + place])
            logical += m[row + COMPUTED] + m[row + SHARE]
        logical += ending_tokens(m)
        row = m[SAMPLES_AT] + m[SAMPLES] * SAMPLE_COLUMNS
        m[row + AT] = m[SAMPLES] * m[SAMPLE_SPACING]
        m[row + USED] = m[USABLE] - m[FREE]
        m[row + FINDABLE] = m[CACHED]
        m[row + UNUSED] = m[FREE] - m[CACHED]
        m[row + RUNNING_NOW] = m[RUNNING]
        m[row + WAITING_NOW] = m[SAMPLED_WAITING]
        m[row + LOGICAL] = logical
        m[row + PHYSICAL] = logical - m[EXTRA_REFS] * m[BLOCK]
        m[SAMPLES] += 1
        if m[SAMPLES] == m[SAMPLE_LIMIT]:
            thin_samples(m)


@compiled
def ending_tokens(m: Memory) -> int:
    """Tokens of sequences that have all of theirs, but are not known to."""
    tokens = 0
    for place in range(m[ENDINGS]):
        row = row_of(m, m[m[ENDINGS_AT] + place])
        if m[row + PHASE] == ENDING:
            tokens += m[row + COMPUTED]
    return tokens


@compiled
def thin_samples(m: Memory) -> None:
    """Every other sample goes, and the spacing doubles."""
    half = m[SAMPLE_LIMIT] // 2
    start = m[SAMPLES_AT]
    for kept in range(1, half):
        for column in range(SAMPLE_COLUMNS):
            m[start + kept * SAMPLE_COLUMNS + column] = m[start + 2 * kept * SAMPLE_COLUMNS + column]
    m[SAMPLES] = half
    m[SAMPLE_SPACING] *= 2
