"""What one sequence holds of the pool."""

from __future__ import annotations

from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    ARENA_AT,
    ARENA_SIZE,
    ARENA_TOP,
    BLOCK,
    CACHING,
    COMMITTED,
    COUNT,
    FOUND_AT,
    ID_TOKENS,
    IDENTIFIED,
    IDS_AT,
    IDS_FROM,
    KEYS,
    KNOWN,
    NAMED,
    NEXT,
    NOBODY,
    NODES_FROM,
    NONE,
    OWN_NUMBER,
    REFS,
    RUN_FIRST,
    RUN_NODE,
    SCHEDULING,
    SGLANG,
    TAG,
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
