"""Steps between two events, all at once: how many there are, how long they take, and what they leave."""

from __future__ import annotations

import math

from vramledger.simulation.compiled import heap
from vramledger.simulation.compiled.decoding import is_due, is_to_fill, name_due, needed_by_decodes
from vramledger.simulation.compiled.ending import finish_due, next_send_ps, next_timer_ps
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    BEGUN,
    BUDGET,
    COMPUTED_TOKENS,
    DECODE_SEQ_PS,
    DECODED_TOKENS,
    DECODING,
    ENDINGS,
    FILLS,
    FILLS_AT,
    FINISHES,
    FINISHES_AT,
    FLOOR_PS,
    FOREVER,
    FREE,
    HAS_TIMERS,
    IS_BLOCKED,
    KV_TOKEN_PS,
    LAG,
    NOW,
    OVERHEAD_PS,
    PREFILLING,
    PRIORITY,
    REPEATED_TOKENS,
    SAMPLE_SPACING,
    SAMPLED_WAITING,
    SAMPLES,
    SCHEDULING,
    SGLANG,
    STATIC_BATCH,
    STEP,
    STEPS,
    TIME_LIMIT,
    TIMERS,
    TOKEN_PS,
    WAITING,
    Memory,
)  # fmt: skip
from vramledger.simulation.compiled.pool import take
from vramledger.simulation.compiled.token_ratio import decay


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
    if m[SCHEDULING] == SGLANG:
        decay(m, steps)
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
    # Contexts that were cut wait while a static batch generates.
    if (
        (m[PREFILLING] and m[SCHEDULING] != STATIC_BATCH)
        or m[ENDINGS]
        or not m[DECODING]
        or (m[DECODING] > m[BUDGET] and m[SCHEDULING] != SGLANG)
    ):
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
