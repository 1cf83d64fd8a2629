"""What holds of a pool whatever happens to it, and in whatever order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from msgspec.structs import replace

from vramledger.kvcache.blocks.block_store import NULL
from vramledger.kvcache.blocks.eviction import FIFO, LRU, Eviction
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.workload.request import Boundary, WorkloadHeader

FULL = BlockGroup(block_tokens=4)
WINDOW = BlockGroup(kind=GroupKind.WINDOW, block_tokens=4, window_tokens=10)
NARROW = BlockGroup(kind=GroupKind.WINDOW, block_tokens=2, window_tokens=5)
CHUNK = BlockGroup(kind=GroupKind.CHUNK, block_tokens=4, window_tokens=16)
KEPT_STATE = BlockGroup(kind=GroupKind.STATE, block_tokens=4, state_blocks=1, keeps_states=True)
STATE = BlockGroup(kind=GroupKind.STATE, block_tokens=4, state_blocks=2)
CROSS = BlockGroup(kind=GroupKind.CROSS, block_tokens=4)

LAYOUTS = {
    "full": (FULL,),
    "window": (WINDOW,),
    "full+window": (FULL, WINDOW),
    "full+narrow": (FULL, NARROW),
    "full+chunk": (FULL, CHUNK),
    "full+states": (FULL, KEPT_STATE),
    "full+constant": (FULL, STATE),
    "full+cross": (FULL, CROSS),
}
BLOCKS = 40
Sequence = int


class PoolMachine(RuleBasedStateMachine):
    """A pool and, beside it, what its sequences were told to be."""

    sequences: Bundle[Sequence] = Bundle("sequences")
    away: Bundle[Sequence] = Bundle("away")

    @initialize(
        groups=st.sampled_from(sorted(LAYOUTS)),
        uncached_first=st.booleans(),
        retention=st.sampled_from([None, 0, 8]),
        eviction=st.sampled_from([LRU, FIFO]),
    )
    def make(self, groups: str, uncached_first: bool, retention: int | None, eviction: Eviction) -> None:
        self.pool = BlockPool(
            PoolLayout(
                num_blocks=BLOCKS,
                reserved_blocks=1,
                groups=LAYOUTS[groups],
                uncached_first=uncached_first,
                retention_tokens=retention,
            ),
            eviction=eviction,
            host_blocks=20,
        )
        self.next_sequence = 0
        # The content of each sequence, a name a key, and its boundary: what it may share.
        self.content: dict[Sequence, tuple[int, list[int]]] = {}
        self.holders: dict[int, tuple[int, tuple[int, ...]]] = {}

    @rule(
        target=sequences,
        boundary=st.integers(0, 1),
        trunk=st.integers(0, 1),
        common=st.integers(0, 12),
        tokens=st.integers(1, 50),
        keep=st.integers(0, 3),
    )
    def open(self, boundary: int, trunk: int, common: int, tokens: int, keep: int) -> Sequence:
        number = self.next_sequence = self.next_sequence + 1
        size = self.pool.layout.key_tokens
        shared = [trunk * 1_000 + place for place in range(common)]
        keys = (shared + [number * 10_000 + place for place in range(30)])[: tokens // size + 2]
        before = self.figures()
        hit = self.pool.hit_tokens(keys, boundary=boundary, limit_tokens=tokens - 1)
        assert hit <= max(tokens - 1, 0) and hit % self.pool.layout.hit_tokens == 0
        assert hit <= common * size, "a hit beyond what any other sequence has in common with this one"
        needed = self.pool.needed_blocks(
            number, tokens, keys=keys, boundary=boundary, hit_tokens=hit, encoder_tokens=5
        )
        assert self.figures() == before, "looking changed something"
        free = self.pool.free_blocks
        is_open = self.pool.open(
            number,
            keys=keys,
            boundary=boundary,
            hit_tokens=hit,
            tokens=tokens,
            keep_free_blocks=keep,
            encoder_tokens=5,
            reachable=(tokens - 1,),
        )
        if not is_open:
            assert self.figures() == before, "a failed open changed something"
            assert needed + keep > free or self.pool._tables.fresh_states
            return 0
        assert free - self.pool.free_blocks == needed
        assert self.pool.free_blocks >= keep
        self.content[number] = (boundary, keys)
        return number

    @rule(sequence=sequences, more=st.integers(1, 20), computed=st.integers(0, 20))
    def grow(self, sequence: Sequence, more: int, computed: int) -> None:
        if sequence not in self.pool:
            return
        tokens = self.pool.tokens_of(sequence)
        computed = max(0, tokens - computed)
        self.pool.grow(sequence, tokens, computed_tokens=computed)
        before = self.figures()
        siblings = {
            other: self.pool.block_tables(other)
            for other in self.content
            if other in self.pool and other != sequence
        }
        if self.pool.grow(sequence, tokens + more, computed_tokens=computed):
            assert self.pool.tokens_of(sequence) == tokens + more
        else:
            assert self.figures() == before, "a failed growth changed something"
        assert siblings == {other: self.pool.block_tables(other) for other in siblings}

    @rule(sequence=sequences, share=st.integers(0, 4))
    def commit(self, sequence: Sequence, share: int) -> None:
        if sequence in self.pool:
            used = self.pool.used_blocks, self.pool.cached_blocks
            self.pool.commit(sequence, self.pool.tokens_of(sequence) * share // 4)
            assert (self.pool.used_blocks, self.pool.cached_blocks) == used

    @rule(sequence=consumes(sequences), forget=st.booleans())
    def free(self, sequence: Sequence, forget: bool) -> None:
        if sequence not in self.pool:
            return
        own = self.blocks_of(sequence)
        others = {
            block
            for other in self.content
            if other in self.pool and other != sequence
            for block in self.blocks_of(other)
        }
        free = self.pool.free_blocks
        self.pool.free(sequence, forget=forget)
        del self.content[sequence]
        assert self.pool.free_blocks - free == len(set(own) - others), (
            "it did not return just what it alone held"
        )

    @rule(target=sequences, sequence=sequences)
    def fork(self, sequence: Sequence) -> Sequence:
        if sequence not in self.pool:
            return 0
        number = self.next_sequence = self.next_sequence + 1
        physical, logical = self.pool.physical_tokens, self.pool.logical_tokens
        self.pool.fork(sequence, number)
        boundary, keys = self.content[sequence]
        self.content[number] = (
            boundary,
            keys[: self.pool.tokens_of(sequence) // self.pool.layout.key_tokens],
        )
        assert self.pool.physical_tokens == physical
        assert self.pool.logical_tokens >= logical
        return number

    @rule(sequence=sequences)
    def write(self, sequence: Sequence) -> None:
        if sequence not in self.pool:
            return
        before = self.figures()
        own = self.pool.block_tables(sequence)
        copied = self.pool.counters.copied_blocks
        if not self.pool.write(sequence):
            assert self.figures() == before
            return
        changed = sum(
            a != b
            for old, new in zip(own, self.pool.block_tables(sequence), strict=True)
            for a, b in zip(old, new, strict=True)
        )
        assert changed == self.pool.counters.copied_blocks - copied
        assert self.pool.write(sequence) and self.pool.counters.copied_blocks == copied + changed

    @rule(target=away, sequence=consumes(sequences))
    def swap_out(self, sequence: Sequence) -> Sequence:
        if sequence not in self.pool:
            return 0
        before, logical = self.figures(), self.pool.logical_tokens
        moved = self.pool.swap_out(sequence)
        if sequence in self.pool:
            assert moved == 0 and self.figures() == before
            self.pool.free(sequence)
            del self.content[sequence]
            return 0
        assert logical - self.pool.logical_tokens == moved
        return sequence

    @rule(target=sequences, sequence=consumes(away), is_cancelled=st.booleans())
    def swap_in(self, sequence: Sequence, is_cancelled: bool) -> Sequence:
        if not sequence:
            return 0
        before, logical = self.figures(), self.pool.logical_tokens
        counted = self.pool.counters.swapped_in_tokens
        if not is_cancelled and self.pool.swap_in(sequence):
            assert self.pool.logical_tokens - logical == self.pool.counters.swapped_in_tokens - counted
            return sequence
        assert self.figures() == before
        self.pool.free(sequence)
        del self.content[sequence]
        return 0

    @rule(sequence=sequences)
    def pin(self, sequence: Sequence) -> None:
        if sequence in self.pool:
            self.pool.pin(sequence)
            assert self.pool.pinned_tokens > 0 or not self.pool.logical_tokens

    @rule(sequence=sequences)
    def unpin(self, sequence: Sequence) -> None:
        if sequence in self.pool:
            self.pool.unpin(sequence)

    @rule()
    def start_step(self) -> None:
        self.pool.start_step()

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool, store = self.pool, self.pool._store
        free = list(store.order)
        held = Counter(
            block for sequence in self.content if sequence in pool for block in self.blocks_of(sequence)
        )
        assert sorted(free + list(held)) == list(range(1, BLOCKS)), "a block is lost or counted twice"
        assert [held[block] for block in range(len(store.references))] == store.references
        assert pool.used_blocks == len(held)
        assert pool.free_blocks == len(free)
        assert pool.cached_blocks == sum(map(store.index.holds, free))
        assert pool.used_blocks + pool.cached_blocks + pool.empty_blocks == pool.layout.usable_blocks
        assert pool.physical_tokens == sum(store.fill_tokens[block] for block in held) <= pool.logical_tokens
        assert (
            pool.waste_tokens
            == sum(store.size_tokens[block] - store.fill_tokens[block] for block in held)
            >= 0
        )
        assert pool.logical_tokens == sum(map(self.tokens_in_tables, self.present()))
        assert pool.sequence_tokens == sum(map(pool.tokens_of, self.present()))
        full = [n for n, group in enumerate(pool.layout.groups) if group.kind is GroupKind.FULL]
        if full:
            leading = {block for one in self.present() for block in pool.block_tables(one)[full[0]]} - {NULL}
            assert pool.distinct_tokens == sum(store.fill_tokens[block] for block in leading)
        assert pool.distinct_tokens <= pool.sequence_tokens
        entries = sum(len(table) for sequence in self.present() for table in pool.block_tables(sequence))
        assert pool.block_table_bytes == 4 * entries
        assert 0 <= pool.pinned_tokens <= pool.logical_tokens
        assert 0 <= pool.swapped_blocks <= pool.host_blocks
        if not pool._swapped:
            assert pool.swapped_blocks == 0

    @invariant()
    def nobody_holds_what_is_not_its_own(self) -> None:
        if not hasattr(self, "pool"):
            return
        index = self.pool._store.index
        for sequence in self.present():
            boundary, keys = self.content[sequence]
            for number, table in enumerate(self.pool.block_tables(sequence)):
                for block in table:
                    if block != NULL and index.holds(block):
                        shelf, key = index._place_of[block]
                        assert shelf is index.shelf(number, boundary)
                        assert key in keys

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for sequence in list(self.content):
            self.pool.free(sequence)
        pool = self.pool
        assert pool.free_blocks == pool.layout.usable_blocks
        assert (pool.logical_tokens, pool.physical_tokens, pool.waste_tokens) == (0, 0, 0)
        assert (pool.block_table_bytes, pool.pinned_tokens, pool.swapped_blocks) == (0, 0, 0)

    def present(self) -> list[Sequence]:
        return [sequence for sequence in self.content if sequence in self.pool]

    def blocks_of(self, sequence: Sequence) -> list[int]:
        return [block for table in self.pool.block_tables(sequence) for block in table if block != NULL]

    def tokens_in_tables(self, sequence: Sequence) -> int:
        tokens = 0
        for group, table in zip(self.pool.layout.groups, self.pool.block_tables(sequence), strict=True):
            of_group = 5 if group.kind is GroupKind.CROSS else self.pool.tokens_of(sequence)
            for place, block in enumerate(table):
                if block != NULL and group.kind is not GroupKind.STATE:
                    tokens += min(group.block_tokens, of_group - place * group.block_tokens)
        return tokens

    def figures(self) -> tuple[object, ...]:
        pool = self.pool
        return (
            list(pool._store.order),
            list(pool._store.references),
            pool.cached_blocks,
            pool.logical_tokens,
            pool.physical_tokens,
            pool.waste_tokens,
            pool.block_table_bytes,
            pool.pinned_tokens,
            pool.swapped_blocks,
            {sequence: pool.block_tables(sequence) for sequence in self.present()},
        )


PoolMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestPool = PoolMachine.TestCase


@pytest.mark.parametrize("groups", sorted(LAYOUTS))
def test_a_sequence_of_the_same_text_across_a_boundary_never_hits(groups: str) -> None:
    pool = BlockPool(PoolLayout(num_blocks=60, groups=LAYOUTS[groups]))
    keys = list(range(12))
    for sequence, boundary in enumerate([0, 1, 2]):
        assert pool.hit_tokens(keys, boundary=boundary, limit_tokens=23) == 0
        assert pool.open(sequence, keys=keys, boundary=boundary, hit_tokens=0, tokens=24)
        pool.commit(sequence, 24)


@pytest.mark.parametrize("field", Boundary.__struct_fields__)
def test_whatever_differs_of_a_boundary_forbids_sharing(field: str) -> None:
    ours = Boundary(tenant="a", model_revision="b", tokenizer="c", chat_template="d", adapter="e")
    header = WorkloadHeader(name="", source="", boundaries=(ours, replace(ours, **{field: "other"})))
    mine, other = (header.boundaries.index(boundary) for boundary in header.boundaries)
    pool = BlockPool(PoolLayout(num_blocks=20, groups=(FULL,)))
    assert pool.open(1, keys=(1, 2, 3), boundary=mine, hit_tokens=0, tokens=12)
    pool.commit(1, 12)
    assert pool.hit_tokens((1, 2, 3), boundary=mine, limit_tokens=12) == 12
    assert pool.hit_tokens((1, 2, 3), boundary=other, limit_tokens=12) == 0


def test_branches_of_an_agent_share_their_prompt_until_each_writes() -> None:
    pool = BlockPool(PoolLayout(num_blocks=40, groups=(FULL,)))
    assert pool.open("parent", keys=(), boundary=0, hit_tokens=0, tokens=10)
    for child in ("left", "right"):
        pool.fork("parent", child)
    assert (pool.used_blocks, pool.logical_tokens, pool.physical_tokens) == (3, 30, 10)
    assert pool.grow("left", 11, computed_tokens=10)
    assert pool.grow("right", 13, computed_tokens=10)
    # Each has the two full blocks in common and a copy of the third, of two tokens; the parent is left alone with its own.
    assert pool.counters.copied_blocks == 2
    assert pool.counters.copied_tokens == 4
    assert (pool.used_blocks, pool.logical_tokens, pool.physical_tokens) == (2 + 3 + 1, 34, 8 + 2 + 3 + 5)
    assert pool.grow("parent", 12, computed_tokens=10)
    assert pool.counters.copied_blocks == 2


def test_a_swap_takes_what_the_host_holds_and_no_more() -> None:
    pool = BlockPool(PoolLayout(num_blocks=10, groups=(FULL,)), host_blocks=3)
    for number, tokens in enumerate([10, 5]):
        assert pool.open(number, keys=(number,), boundary=0, hit_tokens=0, tokens=tokens)
        pool.commit(number, tokens)
    assert pool.swap_out(0) == 10
    assert (pool.swapped_blocks, pool.used_blocks, pool.cached_blocks) == (3, 2, 1)
    assert pool.swap_out(1) == 0
    assert pool.swap_in(0)
    assert (pool.swapped_blocks, pool.used_blocks, pool.logical_tokens) == (0, 5, 15)
    assert (pool.counters.swapped_out_tokens, pool.counters.swapped_in_tokens) == (10, 10)


def test_blocks_to_keep_free_are_kept_from_newcomers_alone() -> None:
    pool = BlockPool(PoolLayout(num_blocks=4, groups=(FULL,)))
    assert not pool.open(1, keys=(), boundary=0, hit_tokens=0, tokens=12, keep_free_blocks=2)
    assert pool.open(1, keys=(), boundary=0, hit_tokens=0, tokens=8, keep_free_blocks=2)
    assert pool.grow(1, 16, computed_tokens=8)


def test_a_hit_that_is_gone_is_told() -> None:
    pool = BlockPool(PoolLayout(num_blocks=4, groups=(FULL,)))
    with pytest.raises(ValueError, match="no hit"):
        pool.open(1, keys=(1, 2), boundary=0, hit_tokens=4, tokens=8)
    assert pool.open(1, keys=(1, 2), boundary=0, hit_tokens=0, tokens=8)
    with pytest.raises(ValueError, match="already"):
        pool.open(1, keys=(1, 2), boundary=0, hit_tokens=0, tokens=8)


@pytest.mark.parametrize("eviction", [LRU, FIFO])
def test_a_pool_costs_memory_for_the_blocks_that_were_used_of_it(eviction: Eviction) -> None:
    pool = BlockPool(PoolLayout(num_blocks=10**12, groups=(FULL,)), eviction=eviction)
    for number in range(3):
        assert pool.open(number, keys=(), boundary=0, hit_tokens=0, tokens=40)
        pool.free(number)
    assert pool.free_blocks == 10**12
    assert len(pool._store.references) == 10
