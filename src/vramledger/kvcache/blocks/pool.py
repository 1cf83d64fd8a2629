"""The pool of KV blocks: one object for simulation and for admission in front of a live engine.

It keeps vLLM's rules (v1/core: block_pool.py, single_type_kv_cache_manager.py, kv_cache_coordinator.py of 0.19 to 0.33).
It knows no clock and no scheduler: who is admitted, and who gives way, is decided outside.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from vramledger.kvcache.blocks.counters import BlockCounters
from vramledger.kvcache.blocks.eviction import LRU, Eviction
from vramledger.kvcache.blocks.group_rules import (
    covering_blocks,
    hit_places,
    keys_of,
    longest_hit,
    skipped_blocks,
)
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.kvcache.blocks.prefix_index import PrefixIndex

NULL = -1
"""The place of a block that was given back, or was never needed, in a block table."""


class HeldSequence:
    """What one sequence holds: a block table a group, and how far each is filled with findable content."""

    __slots__ = (
        "boundary",
        "committed",
        "encoder_tokens",
        "keys",
        "logical_tokens",
        "skipped",
        "tables",
        "tokens",
    )

    def __init__(self, keys: Sequence[int], boundary: int, encoder_tokens: int, num_groups: int) -> None:
        self.keys = keys
        self.boundary = boundary
        self.encoder_tokens = encoder_tokens
        self.tokens = 0
        self.tables: list[list[int]] = [[] for _ in range(num_groups)]
        self.skipped = [0] * num_groups
        self.committed = [0] * num_groups
        self.logical_tokens = 0


class BlockPool:
    """Blocks of one pool, the sequences that hold them, and the content that can be found.

    Sequences are named by the caller. `keys` are the identities of a sequence's leading blocks of `layout.key_tokens` tokens
    as far as they are known (`workload.engine_block_ids`); content beyond them is nameless: nobody will ever hit it, but it
    takes its turn among the blocks to be reused. `boundary` numbers what may be shared at all (workload.Boundary). The pool keeps
    the list it is given and never changes it.

    Every block is held (by one sequence or more), or free; a free one is cached while its content can be found. What does not fit changes
    nothing and returns False.
    """

    def __init__(self, layout: PoolLayout, *, eviction: Eviction = LRU) -> None:
        self.layout = layout
        self.counters = BlockCounters()
        # Groups that a hit has to satisfy, full attention first: its one scan bounds the others.
        self._lookup_order = sorted(
            (entry for entry in enumerate(layout.groups) if entry[1].kind is not GroupKind.CROSS),
            key=lambda entry: entry[1].kind is not GroupKind.FULL,
        )
        self._order = eviction(range(layout.reserved_blocks, layout.num_blocks))
        self._index = PrefixIndex(layout.num_blocks)
        self._references = [0] * layout.num_blocks
        self._filled = bytearray(layout.num_blocks)
        self._fill_tokens = [0] * layout.num_blocks
        self._size_tokens = [0] * layout.num_blocks
        self._sequences: dict[Hashable, HeldSequence] = {}
        self._cached_blocks = 0
        self._logical_tokens = 0
        self._physical_tokens = 0
        self._held_size_tokens = 0
        self._table_entries = 0

    @property
    def free_blocks(self) -> int:
        """Blocks that can be taken: held by nobody, cached ones included."""
        return len(self._order)

    @property
    def used_blocks(self) -> int:
        return self.layout.usable_blocks - len(self._order)

    @property
    def cached_blocks(self) -> int:
        """Free blocks whose content can be found."""
        return self._cached_blocks

    @property
    def empty_blocks(self) -> int:
        """Free blocks with nothing to be found in them."""
        return len(self._order) - self._cached_blocks

    @property
    def logical_tokens(self) -> int:
        """Tokens that sequences hold, a shared one once a sequence (with several groups: once in each that keeps it)."""
        return self._logical_tokens

    @property
    def physical_tokens(self) -> int:
        """The same tokens, a shared one once."""
        return self._physical_tokens

    @property
    def waste_tokens(self) -> int:
        """Room for tokens in held blocks that holds none: the last blocks' rest."""
        return self._held_size_tokens - self._physical_tokens

    @property
    def block_table_bytes(self) -> int:
        return self._table_entries * self.layout.block_table_entry_bytes

    def __contains__(self, sequence: Hashable) -> bool:
        return sequence in self._sequences

    def tokens_of(self, sequence: Hashable) -> int:
        """Tokens that the sequence has room for."""
        return self._sequences[sequence].tokens

    def block_tables(self, sequence: Hashable) -> tuple[tuple[int, ...], ...]:
        """Block numbers a group in order of the tokens; NULL where a block was given back."""
        return tuple(tuple(table) for table in self._sequences[sequence].tables)

    def hit_tokens(self, keys: Sequence[int], *, boundary: int, limit_tokens: int) -> int:
        """Leading tokens whose content is in the pool, whole blocks, at most `limit_tokens` (vLLM: the prompt less one token).

        With several groups the longest length on which all agree.
        """
        layout = self.layout
        align = layout.hit_tokens
        hit = min(limit_tokens, len(keys) * layout.key_tokens)
        while hit > 0:
            agreed = hit
            for number, group in self._lookup_order:
                named = keys_of(group, keys, layout.key_tokens)
                agreed = longest_hit(group, agreed, align, named, self._index.shelf(number, boundary))
            if agreed == hit:
                break
            hit = agreed
        return hit

    def needed_blocks(
        self,
        sequence: Hashable,
        tokens: int,
        *,
        keys: Sequence[int] = (),
        boundary: int = 0,
        hit_tokens: int = 0,
        encoder_tokens: int = 0,
        is_capped: bool = False,
    ) -> int:
        """Blocks that must be free for the sequence to cover `tokens`.

        For one that holds nothing yet its hit is given, of which the blocks that nobody holds count too. `is_capped` counts
        at most `admission_blocks` of each group, as vLLM does where it asks for the room of a whole prompt.
        """
        held = self._sequences.get(sequence)
        if held is not None:
            return self._growth(held, tokens)
        hits = self._hit_blocks(keys, boundary, hit_tokens)
        return self._entry(hits, tokens, hit_tokens, encoder_tokens, is_capped=is_capped)

    def open(
        self,
        sequence: Hashable,
        *,
        keys: Sequence[int],
        boundary: int,
        hit_tokens: int,
        tokens: int,
        keep_free_blocks: int = 0,
        encoder_tokens: int = 0,
        looked_up_tokens: int = 0,
    ) -> bool:
        """Gives a new sequence its hit's blocks and new ones to cover `tokens`, if `keep_free_blocks` stay free.

        `looked_up_tokens` are counted beside the hit when it succeeds.
        """
        if sequence in self._sequences:
            raise ValueError(f"sequence {sequence!r} holds blocks already")
        hits = self._hit_blocks(keys, boundary, hit_tokens)
        needed = self._entry(hits, tokens, hit_tokens, encoder_tokens, is_capped=False)
        if needed + keep_free_blocks > len(self._order):
            return False
        held = HeldSequence(keys, boundary, encoder_tokens, len(hits))
        for number, blocks in enumerate(hits):
            for block in blocks:
                self._hold_again(block)
            places = hit_places(self.layout.groups[number], hit_tokens)
            held.tables[number] = [NULL] * places.start + blocks
            held.skipped[number] = places.start
            held.committed[number] = places.stop
        self._sequences[sequence] = held
        self._table_entries += sum(map(len, held.tables))
        self._extend(held, max(tokens, hit_tokens))
        self.counters.hit_tokens += hit_tokens
        self.counters.looked_up_tokens += looked_up_tokens
        return True

    def grow(self, sequence: Hashable, tokens: int, *, computed_tokens: int) -> bool:
        """Gives the sequence blocks to cover `tokens`.

        Groups with a window first give back what lies before the window of `computed_tokens`, whether the rest then
        fits or not (vLLM: remove_skipped_blocks).
        """
        held = self._sequences[sequence]
        self._give_back_skipped(held, computed_tokens)
        if self._growth(held, tokens) > len(self._order):
            return False
        if tokens > held.tokens:
            self._extend(held, tokens)
        return True

    def commit(self, sequence: Hashable, tokens: int) -> None:
        """Makes the full blocks among the first `tokens` tokens findable where their keys are known.

        vLLM does so when it allocates, before a step computes them; those that follow in the same step already hit.
        """
        held = self._sequences[sequence]
        align = 1 if len(self.layout.groups) == 1 else self.layout.hit_tokens
        tokens = min(tokens, held.tokens) // align * align
        for number, group in enumerate(self.layout.groups):
            if group.kind not in (GroupKind.STATE, GroupKind.CROSS):
                self._commit_group(held, number, group, tokens // group.block_tokens)

    def free(self, sequence: Hashable) -> None:
        """Takes the sequence out; findable blocks that nobody else holds stay cached, its tail the first to be lost."""
        held = self._sequences.pop(sequence)
        self._logical_tokens -= held.logical_tokens
        for table in held.tables:
            self._table_entries -= len(table)
            self._release(reversed(table))

    def _hit_blocks(self, keys: Sequence[int], boundary: int, hit_tokens: int) -> list[list[int]]:
        hits: list[list[int]] = []
        for number, group in enumerate(self.layout.groups):
            named = keys_of(group, keys, self.layout.key_tokens)
            blocks = []
            for place in hit_places(group, hit_tokens):
                block = self._index.find(number, boundary, named[place])
                if block is None:
                    raise ValueError(
                        f"{hit_tokens} tokens are no hit: block {place} of group {number} is gone"
                    )
                blocks.append(block)
            hits.append(blocks)
        return hits

    def _entry(
        self, hits: list[list[int]], tokens: int, hit_tokens: int, encoder_tokens: int, *, is_capped: bool
    ) -> int:
        needed = 0
        for group, blocks in zip(self.layout.groups, hits, strict=True):
            required = covering_blocks(group, tokens, encoder_tokens)
            if is_capped and group.admission_blocks is not None:
                required = min(required, group.admission_blocks)
            needed += max(required - hit_places(group, hit_tokens).stop, 0)
            needed += sum(not self._references[block] for block in blocks)
        return needed

    def _growth(self, held: HeldSequence, tokens: int) -> int:
        return sum(
            max(covering_blocks(group, tokens, held.encoder_tokens) - len(table), 0)
            for group, table in zip(self.layout.groups, held.tables, strict=True)
        )

    def _extend(self, held: HeldSequence, tokens: int) -> None:
        """Takes the blocks to cover `tokens`, which are known to be free."""
        held.tokens = tokens
        for group, table in zip(self.layout.groups, held.tables, strict=True):
            last = len(table) - 1
            missing = covering_blocks(group, tokens, held.encoder_tokens) - len(table)
            size = 0 if group.kind is GroupKind.STATE else group.block_tokens
            if missing > 0:
                table.extend(self._take(size) for _ in range(missing))
                self._table_entries += missing
            if size:
                covered = held.encoder_tokens if group.kind is GroupKind.CROSS else tokens
                self._fill(table, max(last, 0), size, covered)
        self._count_logical(held)

    def _fill(self, table: list[int], first: int, size: int, tokens: int) -> None:
        for place in range(first, len(table)):
            block = table[place]
            fill = min(size, tokens - place * size)
            if block != NULL and fill > self._fill_tokens[block]:
                self._physical_tokens += fill - self._fill_tokens[block]
                self._fill_tokens[block] = fill

    def _count_logical(self, held: HeldSequence) -> None:
        tokens = 0
        for group, skipped in zip(self.layout.groups, held.skipped, strict=True):
            if group.kind is GroupKind.CROSS:
                tokens += held.encoder_tokens
            elif group.kind is not GroupKind.STATE:
                tokens += held.tokens - skipped * group.block_tokens
        self._logical_tokens += tokens - held.logical_tokens
        held.logical_tokens = tokens

    def _give_back_skipped(self, held: HeldSequence, computed_tokens: int) -> None:
        for number, group in enumerate(self.layout.groups):
            table, start = held.tables[number], held.skipped[number]
            stop = min(skipped_blocks(group, computed_tokens), len(table))
            if start < stop:
                gone = table[start:stop]
                table[start:stop] = [NULL] * (stop - start)
                held.skipped[number] = stop
                self._release(reversed(gone))
                self._count_logical(held)

    def _commit_group(self, held: HeldSequence, number: int, group: BlockGroup, stop: int) -> None:
        table = held.tables[number]
        named = keys_of(group, held.keys, self.layout.key_tokens)
        for place in range(held.committed[number], stop):
            block = table[place]
            if block == NULL or self._filled[block]:
                continue
            self._filled[block] = 1
            if place < len(named):
                self._index.add(block, number, held.boundary, named[place])
        held.committed[number] = max(held.committed[number], stop)

    def _take(self, size_tokens: int) -> int:
        block = self._order.take()
        if self._index.drop(block):
            self._cached_blocks -= 1
            self.counters.evicted_blocks += 1
            self.counters.evicted_tokens += self._fill_tokens[block]
        self.counters.taken_blocks += 1
        self._references[block] = 1
        self._filled[block] = 0
        self._fill_tokens[block] = 0
        self._size_tokens[block] = size_tokens
        self._held_size_tokens += size_tokens
        return block

    def _hold_again(self, block: int) -> None:
        if not self._references[block]:
            self._order.withdraw(block)
            self._cached_blocks -= 1
            self._physical_tokens += self._fill_tokens[block]
            self._held_size_tokens += self._size_tokens[block]
        self._references[block] += 1

    def _release(self, blocks: Iterable[int]) -> None:
        kept: list[int] = []
        empty: list[int] = []
        for block in blocks:
            if block == NULL:
                continue
            self._references[block] -= 1
            if self._references[block]:
                continue
            self._physical_tokens -= self._fill_tokens[block]
            self._held_size_tokens -= self._size_tokens[block]
            self._cached_blocks += self._index.holds(block)
            (kept if self._filled[block] or not self.layout.uncached_first else empty).append(block)
        self._order.give_back_empty(empty)
        self._order.give_back(kept)
