"""The block pool without block numbers: only content and order matter.

The free queue is a doubly linked list of nodes. Blocks that came back without a name are one node together; a block with an identity
is a node of its own, so that it can be hit in the queue's middle. Order and eviction are those of `kvcache.blocks`.
"""

from __future__ import annotations

import numpy as np

from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    AHEAD,
    BEHIND,
    CACHED,
    COUNT,
    EMPTY,
    ENDS,
    EVICTED_BLOCKS,
    EXTRA_REFS,
    FILLED,
    FREE,
    ID,
    KIND,
    LATER,
    NAMED_BLOCK,
    NOBODY,
    NODE_COLUMNS,
    NODE_TOP,
    NONE,
    PLACE,
    REFS,
    RUN_NODE,
    SPARE_NODE,
    TABLE_AT,
    TABLE_MASK,
    Memory,
    row_of,
)  # fmt: skip

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_PLACE = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_POSITIVE = 2**63 - 1


@compiled
def mixed(identity: int, place: int, mask: int) -> int:
    """Where in the table a content is looked for first."""
    bits = np.uint64(identity & _POSITIVE) * _MIX
    bits ^= bits >> _HALF
    bits = (bits + np.uint64(place & _POSITIVE)) * _MIX_PLACE
    bits ^= bits >> _HALF
    return np.int64(bits & np.uint64(mask))  # type: ignore[return-value]


@compiled
def slot_of(m: Memory, identity: int, place: int) -> int:
    """Where the table has this content, or the empty place where it would stand."""
    mask, table = m[TABLE_MASK], m[TABLE_AT]
    slot = mixed(identity, place, mask)
    while m[table + slot] != NONE:
        node = m[table + slot]
        if m[node + ID] == identity and m[node + PLACE] == place:
            break
        slot = (slot + 1) & mask
    return table + slot


@compiled
def find(m: Memory, identity: int, place: int) -> int:
    """The oldest block with this content, or NONE."""
    return m[slot_of(m, identity, place)]


@compiled
def index(m: Memory, node: int) -> None:
    """A block's content can be found from now on, after those that have the same already."""
    m[node + LATER] = NONE
    slot = slot_of(m, m[node + ID], m[node + PLACE])
    oldest = m[slot]
    if oldest == NONE:
        m[slot] = node
        return
    while m[oldest + LATER] != NONE:
        oldest = m[oldest + LATER]
    m[oldest + LATER] = node


@compiled
def forget(m: Memory, node: int) -> None:
    """A block's content is lost."""
    slot = slot_of(m, m[node + ID], m[node + PLACE])
    oldest = m[slot]
    if oldest != node:
        while m[oldest + LATER] != node:
            oldest = m[oldest + LATER]
        m[oldest + LATER] = m[node + LATER]
        return
    if m[node + LATER] != NONE:
        m[slot] = m[node + LATER]
        return
    # Those behind the hole move up, as far as they may.
    mask, table = m[TABLE_MASK], m[TABLE_AT]
    m[slot] = NONE
    probe = (slot - table + 1) & mask
    while m[table + probe] != NONE:
        moved = m[table + probe]
        m[table + probe] = NONE
        m[slot_of(m, m[moved + ID], m[moved + PLACE])] = moved
        probe = (probe + 1) & mask


@compiled
def new_node(m: Memory, kind: int, count: int) -> int:
    """A node that stands in no list yet. There are as many nodes as blocks, so there always is one."""
    node = m[SPARE_NODE]
    if node == NONE:
        m[NODE_TOP] += NODE_COLUMNS
        node = m[NODE_TOP]
    else:
        m[SPARE_NODE] = m[node + BEHIND]
    m[node + KIND] = kind
    m[node + COUNT] = count
    m[node + REFS] = NOBODY
    return node


@compiled
def drop_node(m: Memory, node: int) -> None:
    """A node is free to be another."""
    m[node + BEHIND] = m[SPARE_NODE]
    m[SPARE_NODE] = node


@compiled
def link(m: Memory, node: int, ahead: int) -> None:
    """Puts a node into the queue behind another."""
    behind = m[ahead + BEHIND]
    m[node + AHEAD] = ahead
    m[node + BEHIND] = behind
    m[ahead + BEHIND] = node
    m[behind + AHEAD] = node


@compiled
def unlink(m: Memory, node: int) -> None:
    """Takes a node out of the queue."""
    m[m[node + AHEAD] + BEHIND] = m[node + BEHIND]
    m[m[node + BEHIND] + AHEAD] = m[node + AHEAD]


@compiled
def take(m: Memory, blocks: int) -> None:
    """Blocks from the queue's front, whose content is lost. There must be so many."""
    m[FREE] -= blocks
    while blocks > 0:
        node = m[ENDS + BEHIND]
        kind = m[node + KIND]
        taken = min(blocks, m[node + COUNT])
        blocks -= taken
        if kind != EMPTY:
            m[EVICTED_BLOCKS] += taken
            m[CACHED] -= taken
        if taken < m[node + COUNT]:
            m[node + COUNT] -= taken
            return
        unlink(m, node)
        if kind == NAMED_BLOCK:
            forget(m, node)
        elif m[node + REFS] != NOBODY:
            m[row_of(m, m[node + REFS]) + RUN_NODE] = NOBODY
        drop_node(m, node)


@compiled
def give_back_empty(m: Memory, blocks: int, to_front: bool) -> None:
    """Blocks without content, to the queue's front or its end."""
    if blocks == 0:
        return
    m[FREE] += blocks
    neighbour = m[ENDS + BEHIND] if to_front else m[ENDS + AHEAD]
    if neighbour != ENDS and m[neighbour + KIND] == EMPTY:
        m[neighbour + COUNT] += blocks
        return
    node = new_node(m, EMPTY, blocks)
    link(m, node, ENDS if to_front else m[ENDS + AHEAD])


@compiled
def give_back_filled(m: Memory, blocks: int, owner: int) -> int:
    """Full blocks whose content only `owner` could ask for again (NOBODY: no one can), to the queue's end. Returns their node."""
    m[FREE] += blocks
    m[CACHED] += blocks
    last = m[ENDS + AHEAD]
    if owner == NOBODY and last != ENDS and m[last + KIND] == FILLED and m[last + REFS] == NOBODY:
        m[last + COUNT] += blocks
        return last
    node = new_node(m, FILLED, blocks)
    m[node + REFS] = owner
    link(m, node, m[ENDS + AHEAD])
    return node


@compiled
def take_back(m: Memory, node: int) -> int:
    """Their owner takes full blocks out of the queue again; how many."""
    blocks = m[node + COUNT]
    unlink(m, node)
    drop_node(m, node)
    m[FREE] -= blocks
    m[CACHED] -= blocks
    return blocks


@compiled
def hold(m: Memory, node: int) -> None:
    """One sequence more holds a named block."""
    if m[node + REFS] == 0:
        unlink(m, node)
        m[FREE] -= 1
        m[CACHED] -= 1
    else:
        m[EXTRA_REFS] += 1
    m[node + REFS] += 1


@compiled
def let_go(m: Memory, node: int) -> None:
    """One sequence less holds a named block; held by none it stays findable, at the queue's end."""
    m[node + REFS] -= 1
    if m[node + REFS] > 0:
        m[EXTRA_REFS] -= 1
        return
    m[FREE] += 1
    m[CACHED] += 1
    link(m, node, m[ENDS + AHEAD])


@compiled
def name_block(m: Memory, identity: int, place: int) -> int:
    """A held block without a name is full and gets one."""
    node = new_node(m, NAMED_BLOCK, 1)
    m[node + ID] = identity
    m[node + PLACE] = place
    m[node + REFS] = 1
    index(m, node)
    return node
