"""What one sequence holds of the pool."""

from __future__ import annotations

from vramledger.simulation.compiled import heap
from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    ARENA_AT,
    ARENA_SIZE,
    ARENA_TOP,
    BASE,
    BEGAN,
    BLOCK,
    CACHING,
    COMMITTED,
    COMPUTED,
    COUNT,
    DECODE,
    DECODED_TOKENS,
    DECODING,
    FILLS,
    FILLS_AT,
    FINISHES,
    FINISHES_AT,
    FOUND_AT,
    HEAP_ROWS,
    ID_TOKENS,
    IDENTIFIED,
    IDS_AT,
    IDS_FROM,
    KEYS,
    KNOWN,
    LAG,
    NAMED,
    NEXT,
    NOBODY,
    NODES_FROM,
    NONE,
    OUTPUT,
    OWN_NUMBER,
    PHASE,
    PREFILL,
    PREFILLING,
    PREFILLS_AT,
    PREVIOUS,
    PROMPT,
    REFS,
    RESIDUES_AT,
    RUN_FIRST,
    RUN_LAST,
    RUN_NODE,
    RUNNING,
    SCHEDULING,
    SGLANG,
    STEP,
    TAG,
    TURN,
    UNCACHED_FIRST,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.compiled.pool import (
    find,
    give_back_empty,
    give_back_filled,
    hold,
    let_go,
    name_block,
    take,
    take_back,
)  # fmt: skip


@compiled
def covering(tokens: int, block: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + block - 1) // block


@compiled
def key_of(m: Memory, row: int, block: int) -> tuple[int, int]:
    """Identity and place of a request's named block (see `workload.request.engine_block_ids`).

    Where blocks beyond the trace's identities have names too, these are the request's own.
    """
    if block >= m[row + IDENTIFIED]:
        return m[row + OWN_NUMBER], -1 - block
    per_id = m[ID_TOKENS]
    end = (block + 1) * m[BLOCK] - 1
    return m[m[IDS_AT] + m[row + IDS_FROM] + end // per_id], m[row + TAG] * per_id + end % per_id


@compiled
def look_up(m: Memory, row: int) -> tuple[int, int]:
    """Leading blocks of a waiting request that the cache holds, less what its last token is in, and how many of them nobody holds.

    The named ones lie in `found` then. Those beyond its names are its own, from before a preemption.
    """
    if not m[CACHING]:
        return 0, 0
    named = min(m[row + KEYS], (m[row + KNOWN] - 1) // m[BLOCK])
    unheld = 0
    for block in range(named):
        identity, place = key_of(m, row, block)
        node = find(m, identity, place)
        if node == NONE:
            return block, unheld
        m[m[FOUND_AT] + block] = node
        unheld += m[node + REFS] == 0
    run = m[row + RUN_NODE]
    if run != NOBODY:
        return named + m[run + COUNT], unheld + m[run + COUNT]
    return named, unheld


@compiled
def tidy(m: Memory) -> None:
    """Moves the names of running sequences to the arena's beginning. They lie in it in the order of the running list."""
    top, arena = 0, m[ARENA_AT]
    number = m[RUN_FIRST]
    while number != NOBODY:
        row = row_of(m, number)
        start = m[row + NODES_FROM]
        for block in range(m[row + NAMED]):
            m[arena + top + block] = m[arena + start + block]
        m[row + NODES_FROM] = top
        top += m[row + KEYS]
        number = m[row + NEXT]
    m[ARENA_TOP] = top


@compiled
def open_held(m: Memory, row: int, hits: int, new_blocks: int) -> None:
    """A sequence takes its hit and new blocks, which are known to be there. The arena has room for its names."""
    named = min(hits, m[row + KEYS])
    if m[ARENA_TOP] + m[row + KEYS] > m[ARENA_SIZE]:
        tidy(m)
    start = m[ARENA_TOP]
    m[row + NODES_FROM] = start
    m[ARENA_TOP] = start + m[row + KEYS]
    for block in range(named):
        hold(m, m[m[FOUND_AT] + block])
        m[m[ARENA_AT] + start + block] = m[m[FOUND_AT] + block]
    run = m[row + RUN_NODE]
    if run != NOBODY:
        if hits > named:
            take_back(m, run)
        else:
            m[run + REFS] = NOBODY
        m[row + RUN_NODE] = NOBODY
    m[row + NAMED] = named
    take(m, new_blocks)


@compiled
def name_filled(m: Memory, row: int, tokens: int) -> None:
    """The full blocks among its first tokens that have names can be found from now on."""
    if not m[CACHING]:
        return
    named = m[row + NAMED]
    stop = min(m[row + KEYS], tokens // m[BLOCK])
    while named < stop:
        identity, place = key_of(m, row, named)
        node = find(m, identity, place) if m[SCHEDULING] == SGLANG else NONE
        if node == NONE:
            node = name_block(m, identity, place)
        else:
            # What others computed beside it is held once.
            hold(m, node)
            give_back_empty(m, 1, m[UNCACHED_FIRST] != 0)
        m[m[ARENA_AT] + m[row + NODES_FROM] + named] = node
        named += 1
    m[row + NAMED] = named
    m[row + COMMITTED] = tokens


@compiled
def give_back(m: Memory, row: int, held: int, tokens: int, owner: int) -> None:
    """Its blocks, of which those among `tokens` are full, go to the free queue, the tail first. `owner` may ask for them again."""
    if not m[CACHING]:
        give_back_empty(m, held, m[UNCACHED_FIRST] != 0)
        return
    full = tokens // m[BLOCK]
    named = m[row + NAMED]
    give_back_empty(m, held - full, m[UNCACHED_FIRST] != 0)
    if full > named:
        node = give_back_filled(m, full - named, owner)
        if owner != NOBODY:
            m[row + RUN_NODE] = node
    start = m[row + NODES_FROM]
    for block in range(named - 1, -1, -1):
        let_go(m, m[m[ARENA_AT] + start + block])
    m[row + NAMED] = 0


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


@compiled
def enter_running(m: Memory, row: int, number: int) -> None:
    """To the end of the running list."""
    last = m[RUN_LAST]
    m[row + PREVIOUS] = last
    m[row + NEXT] = NOBODY
    if last == NOBODY:
        m[RUN_FIRST] = number
    else:
        m[row_of(m, last) + NEXT] = number
    m[RUN_LAST] = number
    m[RUNNING] += 1


@compiled
def leave_running(m: Memory, row: int, number: int) -> None:
    """Out of the running list, and of those that prefill."""
    before, after = m[row + PREVIOUS], m[row + NEXT]
    if before == NOBODY:
        m[RUN_FIRST] = after
    else:
        m[row_of(m, before) + NEXT] = after
    if after == NOBODY:
        m[RUN_LAST] = before
    else:
        m[row_of(m, after) + PREVIOUS] = before
    m[RUNNING] -= 1
    if m[row + PHASE] == PREFILL:
        place = 0
        while m[m[PREFILLS_AT] + place] != number:
            place += 1
        m[PREFILLING] -= 1
        for later in range(place, m[PREFILLING]):
            m[m[PREFILLS_AT] + later] = m[m[PREFILLS_AT] + later + 1]
