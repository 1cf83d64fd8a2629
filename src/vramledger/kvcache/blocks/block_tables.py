"""The block tables of sequences: how they grow, slide, fill, become findable and are let go (vLLM: single_type_kv_cache_manager.py)."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.kvcache.blocks.block_store import NULL, BlockStore
from vramledger.kvcache.blocks.group_rules import (
    covering_blocks,
    hit_places,
    new_blocks,
    retained_places,
    skipped_blocks,
)
from vramledger.kvcache.blocks.held_sequence import HeldSequence
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.kvcache.blocks.prefix_lookup import PrefixLookup


class BlockTables:
    """Moves blocks of a store in and out of sequences' tables, and keeps the sums over all of them.

    `fresh_states` are the states, by group, boundary and key, that became findable in this step.
    """

    def __init__(self, layout: PoolLayout, store: BlockStore, lookup: PrefixLookup) -> None:
        self.layout = layout
        self.logical_tokens = 0
        self.sequence_tokens = 0
        self.pinned_tokens = 0
        self.entries = 0
        self.fresh_states: set[tuple[int, int, int]] = set()
        self._key_tokens, self._hit_tokens = layout.key_tokens, layout.hit_tokens
        self._store = store
        self._lookup = lookup
        self._sliding = [entry for entry in lookup.groups if entry[1].kind is not GroupKind.FULL]
        self._sizes = [0 if group.is_state else group.block_tokens for group in layout.groups]
        # The group whose blocks stand for the tokens of sequences.
        self.lead = next(
            (number for number, group in enumerate(layout.groups) if group.kind is GroupKind.FULL), None
        )

    def needed_to_enter(
        self,
        hits: list[list[int]],
        tokens: int,
        hit_tokens: int,
        *,
        encoder_tokens: int = 0,
        is_capped: bool = False,
    ) -> int:
        """Free blocks that a new sequence takes: new ones, and those of its hit that nobody holds."""
        needed = 0
        for group, blocks in zip(self.layout.groups, hits, strict=True):
            required = covering_blocks(group, tokens, encoder_tokens)
            if is_capped and group.admission_blocks is not None:
                required = min(required, group.admission_blocks)
            needed += new_blocks(group, hit_places(group, hit_tokens).stop, required)
            needed += sum(not self._store.references[block] for block in blocks)
        return needed

    def needed_to_grow(self, held: HeldSequence, tokens: int) -> int:
        needed = len(self.shared_places(held)) if tokens > held.tokens else 0
        for number, group in enumerate(self.layout.groups):
            required = covering_blocks(group, tokens, held.encoder_tokens)
            needed += new_blocks(group, len(held.tables[number]), required)
        return needed

    def enter(self, held: HeldSequence, hits: list[list[int]], hit_tokens: int, tokens: int) -> None:
        """Fills a new sequence's tables: every group's hit first, then what is missing (a new block never takes a hit's)."""
        for number, blocks in enumerate(hits):
            for block in blocks:
                self._store.hold(block)
            places = hit_places(self.layout.groups[number], hit_tokens)
            held.tables[number] = [NULL] * places.start + blocks
            held.skipped[number] = places.start
            held.committed[number] = places.stop
        self.entries += held.table_entries
        self.extend(held, max(tokens, hit_tokens))

    def share(self, parent: HeldSequence, held: HeldSequence) -> None:
        """A new sequence that holds all of another's blocks."""
        held.tokens = parent.tokens
        held.is_forked = parent.is_forked = True
        held.tables = [list(table) for table in parent.tables]
        held.skipped = list(parent.skipped)
        held.committed = list(parent.committed)
        for table in held.tables:
            for block in table:
                if block != NULL:
                    self._store.hold(block)
        self.entries += held.table_entries
        self._count(held)

    def extend(self, held: HeldSequence, tokens: int) -> None:
        """Takes the blocks to cover `tokens`, which are known to be free."""
        held.tokens = tokens
        for number, group in enumerate(self.layout.groups):
            table = held.tables[number]
            places = len(table)
            required = covering_blocks(group, tokens, held.encoder_tokens)
            if required > places:
                size = self._sizes[number]
                count = new_blocks(group, places, required)
                table.extend([NULL] * (required - places - count))
                table.extend(self._store.take(size, leads=number == self.lead) for _ in range(count))
                self.entries += required - places
            self._fill(held, number, max(places - 1, 0))
        self._count(held)

    def give_back_skipped(self, held: HeldSequence, computed_tokens: int) -> None:
        """Frees what no later token looks at; its places stay in the tables."""
        for number, group in self._sliding:
            table, start = held.tables[number], held.skipped[number]
            stop = min(skipped_blocks(group, computed_tokens), len(table))
            if start < stop:
                gone = table[start:stop]
                table[start:stop] = [NULL] * (stop - start)
                held.skipped[number] = stop
                self._store.release(reversed(gone))
                self._count(held)

    def commit(self, held: HeldSequence, tokens: int) -> None:
        """Completes the blocks that lie within the first `tokens` tokens."""
        tokens = min(tokens, held.tokens)
        # A group alone is not aligned to others.
        is_aligned = self.layout.aligned_commits and len(self.layout.groups) > 1
        aligned = tokens // self._hit_tokens * self._hit_tokens if is_aligned else tokens
        for number, group in self._lookup.groups:
            if group.keeps_states and self.layout.renews_states:
                self._renew_state(held, number, aligned)
            stop = aligned // group.block_tokens
            if stop <= held.committed[number]:
                continue
            table = held.tables[number]
            places = range(held.committed[number], stop)
            for place in self._retained(group, places, held):
                if group.keeps_states and (place + 1) * group.block_tokens != tokens:
                    continue
                if table[place] != NULL:
                    self._complete(held, number, place)
            held.committed[number] = stop

    def _renew_state(self, held: HeldSequence, number: int, tokens: int) -> None:
        """A prompt's last state that can be hit counts as fresh whenever its sequence is scheduled, until the block after it is
        full or it is given back: vLLM registers it anew each time (MambaManager._cache_partial_tail_block).
        """
        size = self.layout.groups[number].block_tokens
        if not held.reachable or not tokens or tokens % size or tokens != held.reachable[0] // size * size:
            return
        end = tokens // self._key_tokens
        if held.tables[number][tokens // size - 1] != NULL and end <= len(held.keys):
            self.fresh_states.add((number, held.boundary, held.keys[end - 1]))

    def shared_places(self, held: HeldSequence) -> list[tuple[int, int]]:
        """Group and place of the blocks that the next token is written into though others hold them too."""
        if not held.is_forked:
            return []
        references = self._store.references
        shared = []
        for number, group in enumerate(self.layout.groups):
            table = held.tables[number]
            if group.kind is GroupKind.CROSS or not table:
                continue
            if group.is_constant:
                places = range(len(table))
            elif held.tokens % group.block_tokens:
                places = range(len(table) - 1, len(table))
            else:
                continue
            shared += [(number, place) for place in places if references[table[place]] > 1]
        return shared

    def copy_shared(self, held: HeldSequence) -> None:
        for number, place in self.shared_places(held):
            table = held.tables[number]
            table[place] = self._store.copy(table[place])

    def let_go(self, held: HeldSequence) -> None:
        """Releases every block, each table's last one first."""
        self.unpin(held)
        self.logical_tokens -= held.logical_tokens
        self.sequence_tokens -= held.counted_tokens
        self.entries -= held.table_entries
        for table in held.tables:
            self._store.release(reversed(table))

    def forget(self, held: HeldSequence) -> None:
        """What only this sequence holds cannot be found any more."""
        for table in held.tables:
            for block in table:
                if block != NULL and self._store.references[block] == 1:
                    self._store.forget(block)

    def merge(self, held: HeldSequence, from_tokens: int) -> None:
        """Complete blocks from `from_tokens` on whose content was there before are given up for those that are found."""
        for number, table in enumerate(held.tables):
            size = self._sizes[number]
            if not size:
                continue
            for place in range(from_tokens // size, len(table)):
                block = table[place]
                key = self._key(held, number, place)
                if block == NULL or key is None or not self._store.filled[block]:
                    continue
                found = self._store.index.find(number, held.boundary, key)
                if found is not None and found != block:
                    self._store.hold(found)
                    table[place] = found
                    if self._store.references[block] == 1:
                        self._store.forget(block)
                    self._store.release((block,))

    def completeness(self, held: HeldSequence) -> list[list[bool | None]]:
        """By group and place, whether the block's content is complete; None where there is no block."""
        filled = self._store.filled
        return [[None if block == NULL else bool(filled[block]) for block in table] for table in held.tables]

    def restore(self, held: HeldSequence, marks: list[list[bool | None]]) -> None:
        """New blocks for a sequence that `completeness` was asked of, and the same of them findable."""
        for number, size in enumerate(self._sizes):
            held.tables[number] = [
                NULL if mark is None else self._store.take(size, leads=number == self.lead)
                for mark in marks[number]
            ]
            self._fill(held, number, 0)
            for place, mark in enumerate(marks[number]):
                if mark:
                    self._complete(held, number, place)
        self.logical_tokens += held.logical_tokens
        self.sequence_tokens += held.counted_tokens
        self.entries += held.table_entries

    def pin(self, held: HeldSequence) -> None:
        if not held.is_pinned:
            held.is_pinned = True
            self.pinned_tokens += held.logical_tokens

    def unpin(self, held: HeldSequence) -> None:
        if held.is_pinned:
            held.is_pinned = False
            self.pinned_tokens -= held.logical_tokens

    def _retained(self, group: BlockGroup, places: range, held: HeldSequence) -> Iterable[int]:
        if not self.layout.aligned_commits:
            return places
        return retained_places(
            group,
            places,
            align_tokens=self._hit_tokens,
            retention_tokens=self.layout.retention_tokens,
            reachable=held.reachable,
        )

    def _complete(self, held: HeldSequence, number: int, place: int) -> None:
        group = self.layout.groups[number]
        key = self._key(held, number, place)
        self._store.complete(held.tables[number][place], number, held.boundary, key)
        if group.keeps_states and key is not None:
            self.fresh_states.add((number, held.boundary, key))

    def _key(self, held: HeldSequence, number: int, place: int) -> int | None:
        """The identity of a block's content, where it is known."""
        if not self._lookup.is_findable:
            return None
        end = (place + 1) * self.layout.groups[number].block_tokens // self._key_tokens
        return held.keys[end - 1] if 0 < end <= len(held.keys) else None

    def _fill(self, held: HeldSequence, number: int, first_place: int) -> None:
        size, table = self._sizes[number], held.tables[number]
        if not size:
            return
        is_cross = self.layout.groups[number].kind is GroupKind.CROSS
        tokens = held.encoder_tokens if is_cross else held.tokens
        for place in range(first_place, len(table)):
            if table[place] != NULL:
                self._store.fill(table[place], min(size, tokens - place * size))

    def _count(self, held: HeldSequence) -> None:
        tokens = 0
        for number, size in enumerate(self._sizes):
            if self.layout.groups[number].kind is GroupKind.CROSS:
                tokens += held.encoder_tokens
            elif size:
                tokens += held.tokens - held.skipped[number] * size
        self.logical_tokens += tokens - held.logical_tokens
        if held.is_pinned:
            self.pinned_tokens += tokens - held.logical_tokens
        held.logical_tokens = tokens
        self.sequence_tokens += held.tokens - held.counted_tokens
        held.counted_tokens = held.tokens
