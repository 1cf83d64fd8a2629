"""The pool of KV blocks: one object for simulation and for admission in front of a live engine.

It keeps vLLM's rules (v1/core: block_pool.py, single_type_kv_cache_manager.py, kv_cache_coordinator.py of 0.19 to 0.33).
It knows no clock and no scheduler: who is admitted, and who gives way, is decided outside.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from vramledger.kvcache.blocks.block_store import NULL, BlockStore
from vramledger.kvcache.blocks.counters import BlockCounters
from vramledger.kvcache.blocks.eviction import LRU, Eviction
from vramledger.kvcache.blocks.group_rules import (
    covering_blocks,
    hit_places,
    keys_of,
    longest_hit,
    new_blocks,
    retained_places,
    skipped_blocks,
)
from vramledger.kvcache.blocks.held_sequence import HeldSequence
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout

PARTIAL, COMPLETE = 0, 1
"""What a swapped sequence's table says of each place instead of a block."""


class BlockPool:
    """Blocks of one pool, the sequences that hold them, and the content that can be found.

    Sequences are named by the caller. `keys` are the identities of a sequence's leading blocks of `layout.key_tokens` tokens
    as far as they are known (`workload.engine_block_ids`); content beyond them is nameless: nobody will ever hit it, but it
    takes its turn among the blocks to be reused. `boundary` numbers what may be shared at all (workload.Boundary). The pool keeps
    the list it is given and never changes it.

    Every block is held (by one sequence or more), or free; a free one is cached while its content can be found. What does
    not fit changes nothing and returns False. `host_blocks` are the blocks in host memory that sequences can be
    swapped out to.
    """

    def __init__(self, layout: PoolLayout, *, eviction: Eviction = LRU, host_blocks: int = 0) -> None:
        self.layout = layout
        self.host_blocks = host_blocks
        self.swapped_blocks = 0
        self._store = BlockStore(layout, eviction)
        self._sequences: dict[Hashable, HeldSequence] = {}
        self._swapped: dict[Hashable, HeldSequence] = {}
        self._fresh_states: set[tuple[int, int, int]] = set()
        self._logical_tokens = 0
        self._pinned_tokens = 0
        self._table_entries = 0
        # Groups that a hit has to satisfy, full attention first: its one scan bounds the others.
        self._lookup_order = sorted(
            ((number, group) for number, group in enumerate(layout.groups) if not group.is_constant),
            key=lambda entry: entry[1].kind is not GroupKind.FULL,
        )
        # A state that cannot be found again forbids every hit, and so do an encoder's blocks.
        self._is_findable = not any(group.is_constant for group in layout.groups)

    @property
    def counters(self) -> BlockCounters:
        return self._store.counters

    @property
    def free_blocks(self) -> int:
        """Blocks that can be taken: held by nobody, cached ones included."""
        return len(self._store.order)

    @property
    def used_blocks(self) -> int:
        return self.layout.usable_blocks - len(self._store.order)

    @property
    def cached_blocks(self) -> int:
        """Free blocks whose content can be found."""
        return self._store.cached_blocks

    @property
    def empty_blocks(self) -> int:
        """Free blocks with nothing to be found in them."""
        return len(self._store.order) - self._store.cached_blocks

    @property
    def logical_tokens(self) -> int:
        """Tokens that sequences hold, a shared one once a sequence (with several groups: once in each that keeps it)."""
        return self._logical_tokens

    @property
    def physical_tokens(self) -> int:
        """The same tokens, a shared one once."""
        return self._store.held_fill_tokens

    @property
    def pinned_tokens(self) -> int:
        """Those of the logical tokens that pinned sequences hold."""
        return self._pinned_tokens

    @property
    def waste_tokens(self) -> int:
        """Room for tokens in held blocks that holds none: the last blocks' rest."""
        return self._store.held_size_tokens - self._store.held_fill_tokens

    @property
    def block_table_bytes(self) -> int:
        return self._table_entries * self.layout.block_table_entry_bytes

    def __contains__(self, sequence: Hashable) -> bool:
        """Whether the sequence holds blocks on the device."""
        return sequence in self._sequences

    def tokens_of(self, sequence: Hashable) -> int:
        """Tokens that the sequence has room for."""
        return self._sequences[sequence].tokens

    def block_tables(self, sequence: Hashable) -> tuple[tuple[int, ...], ...]:
        """Block numbers a group in order of the tokens; NULL where a block was given back."""
        return tuple(tuple(table) for table in self._sequences[sequence].tables)

    def reuse_order(self) -> list[int]:
        """The free blocks, the next to be given out first."""
        return list(self._store.order)

    def hit_tokens(self, keys: Sequence[int], *, boundary: int, limit_tokens: int) -> int:
        """Leading tokens whose content is in the pool, whole blocks, at most `limit_tokens` (vLLM: the prompt less one token).

        With several groups the longest length on which all agree.
        """
        return self.shared_prefix(keys, boundary=boundary, limit_tokens=limit_tokens)[0]

    def shared_prefix(self, keys: Sequence[int], *, boundary: int, limit_tokens: int) -> tuple[int, int]:
        """The hit, and the longest one of a single group: where that is longer, states or windows there are worth retaining."""
        layout = self.layout
        if not self._is_findable:
            return 0, 0
        align = layout.hit_tokens
        hit, longest = min(limit_tokens, len(keys) * layout.key_tokens), 0
        while hit > 0:
            agreed = hit
            for number, group in self._lookup_order:
                named = keys_of(group, keys, layout.key_tokens)
                agreed = longest_hit(group, agreed, align, named, self._store.index.shelf(number, boundary))
                longest = max(longest, agreed)
            if agreed == hit:
                break
            hit = agreed
        return max(hit, 0), longest

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
        reachable: tuple[int, ...] = (),
    ) -> bool:
        """Gives a new sequence its hit's blocks and new ones to cover `tokens`, if `keep_free_blocks` stay free.

        `looked_up_tokens` are counted beside the hit when it succeeds. `reachable` are the lengths at which a sparse retention
        keeps windows and states: vLLM's are the prompt less one token, and `shared_prefix`'s second where it exceeds the hit.
        """
        if sequence in self._sequences or sequence in self._swapped:
            raise ValueError(f"sequence {sequence!r} holds blocks already")
        hits = self._hit_blocks(keys, boundary, hit_tokens)
        needed = self._entry(hits, tokens, hit_tokens, encoder_tokens, is_capped=False)
        if needed + keep_free_blocks > self.free_blocks or self._hits_fresh_state(keys, boundary, hit_tokens):
            return False
        held = HeldSequence(keys, boundary, len(hits), encoder_tokens=encoder_tokens, reachable=reachable)
        for number, blocks in enumerate(hits):
            for block in blocks:
                self._store.hold(block)
            places = hit_places(self.layout.groups[number], hit_tokens)
            held.tables[number] = [NULL] * places.start + blocks
            held.skipped[number] = places.start
            held.committed[number] = places.stop
        self._sequences[sequence] = held
        self._table_entries += held.table_entries
        self._extend(held, max(tokens, hit_tokens))
        self.counters.hit_tokens += hit_tokens
        self.counters.looked_up_tokens += looked_up_tokens
        return True

    def grow(self, sequence: Hashable, tokens: int, *, computed_tokens: int) -> bool:
        """Gives the sequence blocks to cover `tokens`, and one of its own for a last one that it shares.

        Groups with a window first give back what lies before the window of `computed_tokens`, whether the rest then
        fits or not (vLLM: remove_skipped_blocks).
        """
        held = self._sequences[sequence]
        self._give_back_skipped(held, computed_tokens)
        if self._growth(held, tokens) > self.free_blocks:
            return False
        if tokens > held.tokens:
            self._copy_shared(held)
            self._extend(held, tokens)
        return True

    def commit(self, sequence: Hashable, tokens: int) -> None:
        """Makes the full blocks among the first `tokens` tokens findable where their keys are known.

        vLLM does so when it allocates, before a step computes them; those that follow in the same step already hit. A state is
        that of the last token computed: it becomes findable only where `tokens` is the end of its block.
        """
        held = self._sequences[sequence]
        tokens = min(tokens, held.tokens)
        for number, group in self._lookup_order:
            self._commit_group(held, number, group, tokens)

    def start_step(self) -> None:
        """A new step begins: states that the last one completed can be hit from now on (vLLM: new_step_starts)."""
        self._fresh_states.clear()

    def free(self, sequence: Hashable, *, forget: bool = False) -> None:
        """Takes the sequence out; findable blocks that nobody else holds stay cached, its tail the first to be lost.

        With `forget` nothing that only it holds can be found again. A swapped one gives its host blocks back.
        """
        swapped = self._swapped.pop(sequence, None)
        if swapped is not None:
            self.swapped_blocks -= _blocks_in(swapped)
            return
        held = self._sequences.pop(sequence)
        if held.is_pinned:
            self._pinned_tokens -= held.logical_tokens
        if forget:
            for table in held.tables:
                for block in table:
                    if block != NULL and self._store.references[block] == 1:
                        self._store.forget(block)
        self._let_go(held)

    def fork(self, sequence: Hashable, child: Hashable, *, keys: Sequence[int] | None = None) -> None:
        """A second sequence that goes on from where the first one is; they share every block until one of them writes.

        `keys` are the child's where they are known further than its parent's full blocks.
        """
        if child in self._sequences or child in self._swapped:
            raise ValueError(f"sequence {child!r} holds blocks already")
        parent = self._sequences[sequence]
        if keys is None:
            keys = parent.keys[: parent.tokens // self.layout.key_tokens]
        held = HeldSequence(
            keys,
            parent.boundary,
            len(parent.tables),
            encoder_tokens=parent.encoder_tokens,
            reachable=parent.reachable,
        )
        held.tokens = parent.tokens
        held.tables = [list(table) for table in parent.tables]
        held.skipped = list(parent.skipped)
        held.committed = list(parent.committed)
        held.logical_tokens = parent.logical_tokens
        for table in held.tables:
            for block in table:
                if block != NULL:
                    self._store.hold(block)
        self._sequences[child] = held
        self._logical_tokens += held.logical_tokens
        self._table_entries += held.table_entries

    def write(self, sequence: Hashable) -> bool:
        """Copies what the sequence shares and will write into next: part-filled last blocks, and states."""
        held = self._sequences[sequence]
        if len(self._shared_places(held)) > self.free_blocks:
            return False
        self._copy_shared(held)
        return True

    def swap_out(self, sequence: Hashable) -> int:
        """Moves the sequence's blocks to the host and frees them; the tokens moved, 0 where the host has no room for them."""
        held = self._sequences[sequence]
        if self.swapped_blocks + _blocks_in(held) > self.host_blocks:
            return 0
        del self._sequences[sequence]
        if held.is_pinned:
            held.is_pinned = False
            self._pinned_tokens -= held.logical_tokens
        self._swapped[sequence] = held
        self.swapped_blocks += _blocks_in(held)
        filled = self._store.filled
        marks = [
            [NULL if block == NULL else (COMPLETE if filled[block] else PARTIAL) for block in table]
            for table in held.tables
        ]
        self._let_go(held)
        held.tables = marks
        self.counters.swapped_out_tokens += held.logical_tokens
        return held.logical_tokens

    def swap_in(self, sequence: Hashable, *, keep_free_blocks: int = 0) -> bool:
        """Brings a swapped sequence back into blocks of its own, and makes findable what was."""
        held = self._swapped[sequence]
        if _blocks_in(held) + keep_free_blocks > self.free_blocks:
            return False
        del self._swapped[sequence]
        self.swapped_blocks -= _blocks_in(held)
        self._sequences[sequence] = held
        for number, group in enumerate(self.layout.groups):
            table = held.tables[number]
            complete = [place for place, mark in enumerate(table) if mark == COMPLETE]
            size = _size_tokens(group)
            table[:] = [NULL if mark == NULL else self._store.take(size) for mark in table]
            self._fill(held, number, 0)
            for place in complete:
                self._complete(held, number, place)
        self._logical_tokens += held.logical_tokens
        self._table_entries += held.table_entries
        self.counters.swapped_in_tokens += held.logical_tokens
        return True

    def pin(self, sequence: Hashable) -> None:
        """Counts the sequence's tokens as kept for a later turn; it goes on holding its blocks until it is freed."""
        held = self._sequences[sequence]
        if not held.is_pinned:
            held.is_pinned = True
            self._pinned_tokens += held.logical_tokens

    def unpin(self, sequence: Hashable) -> None:
        """The sequence runs again, or is about to be freed."""
        held = self._sequences[sequence]
        if held.is_pinned:
            held.is_pinned = False
            self._pinned_tokens -= held.logical_tokens

    def _hit_blocks(self, keys: Sequence[int], boundary: int, hit_tokens: int) -> list[list[int]]:
        hits: list[list[int]] = []
        for number, group in enumerate(self.layout.groups):
            stride = group.block_tokens // self.layout.key_tokens
            blocks = []
            for place in hit_places(group, hit_tokens):
                block = self._store.index.find(number, boundary, keys[(place + 1) * stride - 1])
                if block is None:
                    raise ValueError(
                        f"{hit_tokens} tokens are no hit: block {place} of group {number} is gone"
                    )
                blocks.append(block)
            hits.append(blocks)
        return hits

    def _hits_fresh_state(self, keys: Sequence[int], boundary: int, hit_tokens: int) -> bool:
        """Whether the hit's state is only being computed in this step: attention reads along, but a state is copied beforehand."""
        if not hit_tokens or not self._fresh_states:
            return False
        last = keys[hit_tokens // self.layout.key_tokens - 1]
        return any((number, boundary, last) in self._fresh_states for number, _ in self._lookup_order)

    def _entry(
        self, hits: list[list[int]], tokens: int, hit_tokens: int, encoder_tokens: int, *, is_capped: bool
    ) -> int:
        needed = 0
        for group, blocks in zip(self.layout.groups, hits, strict=True):
            required = covering_blocks(group, tokens, encoder_tokens)
            if is_capped and group.admission_blocks is not None:
                required = min(required, group.admission_blocks)
            needed += new_blocks(group, hit_places(group, hit_tokens).stop, required)
            needed += sum(not self._store.references[block] for block in blocks)
        return needed

    def _growth(self, held: HeldSequence, tokens: int) -> int:
        needed = len(self._shared_places(held)) if tokens > held.tokens else 0
        for group, table in zip(self.layout.groups, held.tables, strict=True):
            needed += new_blocks(group, len(table), covering_blocks(group, tokens, held.encoder_tokens))
        return needed

    def _extend(self, held: HeldSequence, tokens: int) -> None:
        """Takes the blocks to cover `tokens`, which are known to be free."""
        held.tokens = tokens
        for number, group in enumerate(self.layout.groups):
            table = held.tables[number]
            places = len(table)
            required = covering_blocks(group, tokens, held.encoder_tokens)
            if required > places:
                size = _size_tokens(group)
                count = new_blocks(group, places, required)
                table.extend([NULL] * (required - places - count))
                table.extend(self._store.take(size) for _ in range(count))
                self._table_entries += required - places
            self._fill(held, number, max(places - 1, 0))
        self._count_logical(held)

    def _fill(self, held: HeldSequence, number: int, first_place: int) -> None:
        group, table = self.layout.groups[number], held.tables[number]
        if group.is_state:
            return
        size = group.block_tokens
        tokens = held.encoder_tokens if group.kind is GroupKind.CROSS else held.tokens
        for place in range(first_place, len(table)):
            if table[place] != NULL:
                self._store.fill(table[place], min(size, tokens - place * size))

    def _count_logical(self, held: HeldSequence) -> None:
        tokens = 0
        for group, skipped in zip(self.layout.groups, held.skipped, strict=True):
            if group.kind is GroupKind.CROSS:
                tokens += held.encoder_tokens
            elif not group.is_state:
                tokens += held.tokens - skipped * group.block_tokens
        self._logical_tokens += tokens - held.logical_tokens
        if held.is_pinned:
            self._pinned_tokens += tokens - held.logical_tokens
        held.logical_tokens = tokens

    def _give_back_skipped(self, held: HeldSequence, computed_tokens: int) -> None:
        for number, group in self._lookup_order:
            table, start = held.tables[number], held.skipped[number]
            stop = min(skipped_blocks(group, computed_tokens), len(table))
            if start < stop:
                gone = table[start:stop]
                table[start:stop] = [NULL] * (stop - start)
                held.skipped[number] = stop
                self._store.release(reversed(gone))
                self._count_logical(held)

    def _let_go(self, held: HeldSequence) -> None:
        self._logical_tokens -= held.logical_tokens
        self._table_entries -= held.table_entries
        for table in held.tables:
            self._store.release(reversed(table))

    def _commit_group(self, held: HeldSequence, number: int, group: BlockGroup, tokens: int) -> None:
        align = self.layout.hit_tokens if len(self.layout.groups) > 1 else 1
        aligned = tokens // align * align
        if group.keeps_states and aligned:
            self._keep_fresh(held, number, aligned)
        stop = aligned // group.block_tokens
        if stop <= held.committed[number]:
            return
        table = held.tables[number]
        retained = retained_places(
            group,
            range(held.committed[number], stop),
            align_tokens=self.layout.hit_tokens,
            retention_tokens=self.layout.retention_tokens,
            reachable=held.reachable,
        )
        for place in retained:
            if group.keeps_states and (place + 1) * group.block_tokens != tokens:
                continue
            if table[place] != NULL:
                self._complete(held, number, place)
        held.committed[number] = stop

    def _keep_fresh(self, held: HeldSequence, number: int, tokens: int) -> None:
        """A prompt's last state that can be hit counts as fresh whenever its sequence is scheduled, until the block after it is
        full or it is given back: vLLM registers it anew each time (MambaManager._cache_partial_tail_block).
        """
        size = self.layout.groups[number].block_tokens
        place = tokens // size - 1
        if not held.reachable or tokens % size or tokens != held.reachable[0] // size * size:
            return
        end = tokens // self.layout.key_tokens
        if held.tables[number][place] != NULL and end <= len(held.keys):
            self._fresh_states.add((number, held.boundary, held.keys[end - 1]))

    def _complete(self, held: HeldSequence, number: int, place: int) -> None:
        group = self.layout.groups[number]
        end = (place + 1) * group.block_tokens // self.layout.key_tokens if self._is_findable else 0
        key = held.keys[end - 1] if 0 < end <= len(held.keys) else None
        self._store.complete(held.tables[number][place], number, held.boundary, key)
        if group.keeps_states and key is not None:
            self._fresh_states.add((number, held.boundary, key))

    def _shared_places(self, held: HeldSequence) -> list[tuple[int, int]]:
        """Group and place of the blocks that the next token is written into though others hold them too."""
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

    def _copy_shared(self, held: HeldSequence) -> None:
        for number, place in self._shared_places(held):
            table = held.tables[number]
            table[place] = self._store.copy(table[place])


def _size_tokens(group: BlockGroup) -> int:
    return 0 if group.is_state else group.block_tokens


def _blocks_in(held: HeldSequence) -> int:
    return sum(block != NULL for table in held.tables for block in table)
