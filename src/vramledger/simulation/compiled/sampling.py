"""The pool's state at equally spaced instants (`simulation.reference.sampler`)."""

from __future__ import annotations

from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    AT,
    BLOCK,
    CACHED,
    COMPUTED,
    DECODED_TOKENS,
    DECODING,
    ENDING,
    ENDINGS,
    ENDINGS_AT,
    EXTRA_REFS,
    FINDABLE,
    FREE,
    IS_PREFILL,
    KNOWN,
    LOGICAL,
    PHASE,
    PHYSICAL,
    PREFILLING,
    PREFILLS_AT,
    RUNNING,
    RUNNING_NOW,
    SAMPLE_COLUMNS,
    SAMPLE_LIMIT,
    SAMPLE_SPACING,
    SAMPLED_WAITING,
    SAMPLES,
    SAMPLES_AT,
    SCHEDULING,
    SGLANG,
    SHARE,
    UNUSED,
    USABLE,
    USED,
    WAITING_NOW,
    Memory,
    row_of,
)  # fmt: skip


@compiled
def sample_before(m: Memory, until_ps: int) -> None:
    """Keeps the state that the last scheduling left for every instant before `until_ps`."""
    while m[SAMPLES] * m[SAMPLE_SPACING] < until_ps:
        logical = m[DECODED_TOKENS] + (0 if m[IS_PREFILL] else m[DECODING])
        for place in range(m[PREFILLING]):
            row = row_of(m, m[m[PREFILLS_AT] + place])
            takes_whole = m[SCHEDULING] and m[SCHEDULING] != SGLANG
            logical += m[row + KNOWN] if takes_whole else m[row + COMPUTED] + m[row + SHARE]
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
