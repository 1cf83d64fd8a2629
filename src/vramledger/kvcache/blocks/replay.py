"""How much of a list of prompts a cache of so many blocks finds again: hit share over pool size.

The prompts come one after another and hold their blocks only while they are looked up, as cache simulators have it. An engine
hits less where sequences run together: what they hold cannot be evicted for others, but their outputs take room too; it never
hits a part-filled block, nor a prompt's last token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from vramledger.kvcache.blocks.eviction import FIFO, LRU, FarthestNextUse
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool


class Policy(StrEnum):
    """`LRU` is the engines' own. `FARTHEST` sees the future, and leaves out what will be needed later than all that it has."""

    LRU = "lru"
    FIFO = "fifo"
    FARTHEST = "farthest"


class Prompts(Struct, frozen=True, kw_only=True):
    """Prompts as runs of blocks: `nodes[i]` names each block of prompt i after everything up to its end, `tokens[i]` its tokens."""

    nodes: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[int, ...], ...]


class HitShare(Struct, frozen=True, kw_only=True):
    """Hit and looked-up tokens of the prompts that were measured; `was_full` before the first of them was."""

    hit_tokens: int
    looked_up_tokens: int
    was_full: bool

    @property
    def share(self) -> float:
        return self.hit_tokens / self.looked_up_tokens if self.looked_up_tokens else 0.0


def prompts_of(runs: Iterable[tuple[Sequence[int], int]], block_tokens: int) -> Prompts:
    """Prompts from (block identities, prompt tokens); the last block may be part-filled. Nodes are numbered as they appear."""
    numbers: dict[tuple[int, int], int] = {}
    nodes, tokens = [], []
    for identities, prompt_tokens in runs:
        path, parent = [], 0
        for identity in identities:
            parent = numbers.setdefault((parent, identity), len(numbers) + 1)
            path.append(parent)
        nodes.append(tuple(path))
        last = prompt_tokens - block_tokens * (len(path) - 1)
        tokens.append((block_tokens,) * (len(path) - 1) + (last,) if path else ())
    return Prompts(nodes=tuple(nodes), tokens=tuple(tokens))


def hit_share(prompts: Prompts, blocks: int, policy: Policy, *, warmup: int = 0) -> HitShare:
    """What a cache of `blocks` blocks finds of the prompts after the first `warmup` ones.

    FIFO looks at each block by itself, in order: a prompt's own hit may be evicted for its other blocks.
    """
    pool, admit = _ADMISSIONS[policy](prompts, blocks)
    hit_tokens = looked_up = 0
    was_full = False
    for number, nodes in enumerate(prompts.nodes):
        if number == warmup:
            was_full = not pool.empty_blocks
        found = admit(number, nodes)
        if number >= warmup:
            hit_tokens += sum(prompts.tokens[number][:found])
            looked_up += sum(prompts.tokens[number])
    return HitShare(hit_tokens=hit_tokens, looked_up_tokens=looked_up, was_full=was_full)


def ceiling(prompts: Prompts, *, warmup: int = 0) -> HitShare:
    """What a cache finds that never loses anything."""
    blocks = len({node for nodes in prompts.nodes for node in nodes})
    return hit_share(prompts, max(blocks, 1), Policy.LRU, warmup=warmup)


_Admit = Callable[[int, tuple[int, ...]], int]


def _pool(blocks: int) -> PoolLayout:
    return PoolLayout(num_blocks=blocks, groups=(BlockGroup(block_tokens=1),))


def _by_prompt(prompts: Prompts, blocks: int) -> tuple[BlockPool, _Admit]:
    pool = BlockPool(_pool(blocks), eviction=LRU)

    def admit(number: int, nodes: tuple[int, ...]) -> int:
        found = pool.hit_tokens(nodes, boundary=0, limit_tokens=len(nodes))
        pool.open(number, keys=nodes, boundary=0, hit_tokens=found, tokens=min(len(nodes), blocks))
        pool.commit(number, len(nodes))
        pool.free(number)
        return found

    return pool, admit


def _by_block(prompts: Prompts, blocks: int) -> tuple[BlockPool, _Admit]:
    pool = BlockPool(_pool(blocks), eviction=FIFO)

    def admit(number: int, nodes: tuple[int, ...]) -> int:
        found = pool.hit_tokens(nodes, boundary=0, limit_tokens=len(nodes))
        for node in nodes:
            if not pool.hit_tokens((node,), boundary=0, limit_tokens=1):
                pool.open(node, keys=(node,), boundary=0, hit_tokens=0, tokens=1)
                pool.commit(node, 1)
                pool.free(node)
        return found

    return pool, admit


def _by_future(prompts: Prompts, blocks: int) -> tuple[BlockPool, _Admit]:
    next_use = [0] * blocks
    orders: list[FarthestNextUse] = []

    def eviction(numbers: range) -> FarthestNextUse:
        orders.append(FarthestNextUse(numbers, next_use))
        return orders[0]

    pool = BlockPool(_pool(blocks), eviction=eviction)
    uses = _next_uses(prompts)
    many = max((max(nodes) for nodes in prompts.nodes if nodes), default=0) + 1

    def admit(number: int, nodes: tuple[int, ...]) -> int:
        found = pool.hit_tokens(nodes, boundary=0, limit_tokens=len(nodes))
        pool.open(number, keys=nodes, boundary=0, hit_tokens=found, tokens=found)
        for place in range(found, len(nodes)):
            lost = orders[0].next_to_go()
            if lost is not None and lost // many <= uses[number][place]:
                break
            if not pool.grow(number, place + 1, computed_tokens=place):
                break
        # A prefix is needed whenever what follows it is: of equals the deepest, which has the largest number, goes first.
        for place, block in enumerate(pool.block_tables(number)[0]):
            next_use[block] = uses[number][place] * many + nodes[place]
        pool.commit(number, len(nodes))
        pool.free(number)
        return found

    return pool, admit


def _next_uses(prompts: Prompts) -> list[list[int]]:
    """By prompt and place, the number of the next prompt with that block; what is never needed again comes after all."""
    never = len(prompts.nodes) + 1
    seen: dict[int, int] = {}
    uses: list[list[int]] = []
    for number in range(len(prompts.nodes) - 1, -1, -1):
        uses.append([seen.get(node, never) for node in prompts.nodes[number]])
        seen.update(dict.fromkeys(prompts.nodes[number], number))
    uses.reverse()
    return uses


_ADMISSIONS = {Policy.LRU: _by_prompt, Policy.FIFO: _by_block, Policy.FARTHEST: _by_future}
