"""The sequences that decode: how many tokens each has, when its last token comes, when it fills its next named block.

A decoding sequence's COMPUTED is its tokens less the decode steps so far, so that a step changes no record. Two heaps have when
the next sequence ends and when the next named block is full; an entry is void as soon as its sequence goes on otherwise.
"""

from __future__ import annotations

from vramledger.simulation.compiled import heap
from vramledger.simulation.compiled.holdings import name_filled
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    BASE,
    BEGAN,
    BLOCK,
    CACHING,
    COMPUTED,
    DECODE,
    DECODED_TOKENS,
    DECODING,
    FILLS,
    FILLS_AT,
    FINISHES,
    FINISHES_AT,
    HEAP_ROWS,
    KEYS,
    LAG,
    NAMED,
    OUTPUT,
    PHASE,
    PREFILL,
    PROMPT,
    RESIDUES_AT,
    SCHEDULING,
    STEP,
    TURN,
    Memory,
    row_of,
)  # fmt: skip


@compiled
def due_step(m: Memory, row: int) -> int:
    """Of a decoding sequence: the decode step count at which its last token is there."""
    return m[row + PROMPT] + m[row + OUTPUT] - 1 - m[row + COMPUTED]


@compiled
def in_turn(m: Memory, row: int, step: int) -> int:
    """A key that sorts by step, and within it by the order of admission, which is that of the running list."""
    return step << 32 | m[row + TURN]


@compiled
def fill_step(m: Memory, row: int) -> int:
    """The decode step count at which a step is planned that makes the next named block of a decoding sequence findable."""
    return (m[row + NAMED] + 1) * m[BLOCK] - 1 + m[LAG] - m[row + COMPUTED]


@compiled
def committed(m: Memory, row: int) -> int:
    """Of its computed tokens those that are known to be: where steps are planned ahead not the last one's."""
    is_behind = m[LAG] and m[row + BEGAN] != m[STEP] and m[row + PHASE] != PREFILL
    return m[row + COMPUTED] - (1 if is_behind else 0)


@compiled
def await_fill(m: Memory, row: int, number: int) -> None:
    """Notes when a decoding sequence will fill its next named block: in the scheduling of which step."""
    named = m[row + NAMED]
    if m[CACHING] and named < m[row + KEYS] and not m[SCHEDULING]:
        make_room(m)
        step = fill_step(m, row)
        m[FILLS] = heap.push(m, m[FILLS_AT], m[FILLS], in_turn(m, row, step), number)


@compiled
def start_decoding(m: Memory, row: int, number: int) -> None:
    """From now on the sequence computes a token a step."""
    m[DECODING] += 1
    m[DECODED_TOKENS] += m[row + COMPUTED]
    m[row + PHASE] = DECODE
    m[row + BEGAN] = m[STEP]
    m[row + COMPUTED] -= m[STEP]
    m[m[RESIDUES_AT] + m[row + COMPUTED] % m[BLOCK]] += 1
    make_room(m)
    m[FINISHES] = heap.push(m, m[FINISHES_AT], m[FINISHES], in_turn(m, row, due_step(m, row)), number)
    await_fill(m, row, number)


@compiled
def stop_decoding(m: Memory, row: int) -> None:
    """COMPUTED is the tokens again. What heaps say of the sequence is void."""
    m[m[RESIDUES_AT] + m[row + COMPUTED] % m[BLOCK]] -= 1
    m[row + COMPUTED] += m[STEP]
    m[DECODING] -= 1
    m[DECODED_TOKENS] -= m[row + COMPUTED]


@compiled
def passed_over(m: Memory, row: int, number: int) -> None:
    """A decoding sequence computes nothing in a step in which others do."""
    m[m[RESIDUES_AT] + m[row + COMPUTED] % m[BLOCK]] -= 1
    m[row + COMPUTED] -= 1
    m[DECODED_TOKENS] -= 1
    m[m[RESIDUES_AT] + m[row + COMPUTED] % m[BLOCK]] += 1
    make_room(m)
    m[FINISHES] = heap.push(m, m[FINISHES_AT], m[FINISHES], in_turn(m, row, due_step(m, row)), number)
    await_fill(m, row, number)


@compiled
def is_due(m: Memory, key: int, number: int) -> bool:
    """Whether an entry of the heap of ends still holds."""
    row = row_of(m, number)
    if number < m[BASE] or m[row + PHASE] != DECODE:
        return False
    return key == in_turn(m, row, due_step(m, row))


@compiled
def is_to_fill(m: Memory, key: int, number: int) -> bool:
    """Whether an entry of the heap of named blocks still holds."""
    row = row_of(m, number)
    if number < m[BASE] or m[row + PHASE] != DECODE:
        return False
    step = fill_step(m, row)
    return key == in_turn(m, row, step)


@compiled
def make_room(m: Memory) -> None:
    """Room for a few more entries in the heaps of decoding sequences: void ones go. There is four times the room of those that hold."""
    if m[FINISHES] + 4 > m[HEAP_ROWS]:
        kept = m[FINISHES_AT]
        for place in range(m[FINISHES_AT], m[FINISHES_AT] + 2 * m[FINISHES], 2):
            if is_due(m, m[place], m[place + 1]):
                m[kept] = m[place]
                m[kept + 1] = m[place + 1]
                kept += 2
        m[FINISHES] = (kept - m[FINISHES_AT]) // 2
        heap.heapify(m, m[FINISHES_AT], m[FINISHES])
    if m[FILLS] + 4 > m[HEAP_ROWS]:
        kept = m[FILLS_AT]
        for place in range(m[FILLS_AT], m[FILLS_AT] + 2 * m[FILLS], 2):
            if is_to_fill(m, m[place], m[place + 1]):
                m[kept] = m[place]
                m[kept + 1] = m[place + 1]
                kept += 2
        m[FILLS] = (kept - m[FILLS_AT]) // 2
        heap.heapify(m, m[FILLS_AT], m[FILLS])


@compiled
def name_due(m: Memory, last_key: int) -> None:
    """Names the blocks that decoding sequences fill in steps up to a key."""
    while m[FILLS] and m[m[FILLS_AT]] <= last_key:
        key, number = m[m[FILLS_AT]], m[m[FILLS_AT] + 1]
        m[FILLS] = heap.pop(m, m[FILLS_AT], m[FILLS])
        if is_to_fill(m, key, number):
            row = row_of(m, number)
            name_filled(m, row, (m[row + NAMED] + 1) * m[BLOCK])
            await_fill(m, row, number)


@compiled
def needed_by_decodes(m: Memory, steps: int) -> int:
    """Blocks that the decoding sequences take in their next steps: one whenever all of theirs are full."""
    block = m[BLOCK]
    whole = steps // block
    needed = m[DECODING] * whole
    place = -m[STEP] % block
    for _ in range(steps - whole * block):
        needed += m[m[RESIDUES_AT] + place]
        place = place - 1 if place else block - 1
    return needed
