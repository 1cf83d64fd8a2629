"""The pool of KV blocks: one object for simulation and for admission in front of a live engine.

It keeps vLLM's rules (v1/core: block_pool.py, single_type_kv_cache_manager.py, kv_cache_coordinator.py of 0.19 to 0.33).
It knows no clock and no scheduler: who is admitted, and who gives way, is decided outside.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from vramledger.kvcache.blocks.block_store import BlockStore
from vramledger.kvcache.blocks.block_tables import BlockTables
from vramledger.kvcache.blocks.counters import BlockCounters
from vramledger.kvcache.blocks.eviction import LRU, Eviction
from vramledger.kvcache.blocks.held_sequence import HeldSequence
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.kvcache.blocks.prefix_lookup import PrefixLookup


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
        self._lookup = PrefixLookup(layout, self._store.index)
        self._tables = BlockTables(layout, self._store, self._lookup)
        self._sequences: dict[Hashable, HeldSequence] = {}
        # A swapped sequence with what its blocks on the host hold: complete content or not, None where it has no block.
        self._swapped: dict[Hashable, tuple[HeldSequence, list[list[bool | None]]]] = {}

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
        return self._tables.logical_tokens

    @property
    def physical_tokens(self) -> int:
        """The same tokens, a shared one once."""
        return self._store.held_fill_tokens

    @property
    def sequence_tokens(self) -> int:
        """Tokens of the sequences that hold blocks, each once a sequence, however many groups keep it or have given it back."""
        return self._tables.sequence_tokens

    @property
    def distinct_tokens(self) -> int:
        """The same, a shared one once, as the first group has them that keeps every token; where none does, as many."""
        if self._tables.lead is None:
            return self._tables.sequence_tokens
        return self._store.held_lead_tokens

    @property
    def pinned_tokens(self) -> int:
        """Those of the logical tokens that pinned sequences hold."""
        return self._tables.pinned_tokens

    @property
    def waste_tokens(self) -> int:
        """Room for tokens in held blocks that holds none: the last blocks' rest."""
        return self._store.held_size_tokens - self._store.held_fill_tokens

    @property
    def block_table_bytes(self) -> int:
        return self._tables.entries * self.layout.block_table_entry_bytes

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
        return self._lookup.shared_prefix(keys, boundary, limit_tokens)[0]

    def shared_prefix(self, keys: Sequence[int], *, boundary: int, limit_tokens: int) -> tuple[int, int]:
        """The hit, and the longest one of a single group: where that is longer, states or windows there are worth retaining."""
        return self._lookup.shared_prefix(keys, boundary, limit_tokens)

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
            return self._tables.needed_to_grow(held, tokens)
        return self._tables.needed_to_enter(
            self._lookup.blocks(keys, boundary, hit_tokens),
            tokens,
            hit_tokens,
            encoder_tokens=encoder_tokens,
            is_capped=is_capped,
        )

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
        self._check_new(sequence)
        hits = self._lookup.blocks(keys, boundary, hit_tokens)
        needed = self._tables.needed_to_enter(hits, tokens, hit_tokens, encoder_tokens=encoder_tokens)
        if needed + keep_free_blocks > self.free_blocks or self._hits_fresh_state(keys, boundary, hit_tokens):
            return False
        held = HeldSequence(keys, boundary, len(hits), encoder_tokens=encoder_tokens, reachable=reachable)
        self._tables.enter(held, hits, hit_tokens, tokens)
        self._sequences[sequence] = held
        self.counters.hit_tokens += hit_tokens
        self.counters.looked_up_tokens += looked_up_tokens
        return True

    def grow(self, sequence: Hashable, tokens: int, *, computed_tokens: int) -> bool:
        """Gives the sequence blocks to cover `tokens`, and one of its own for a last one that it shares.

        Groups with a window first give back what lies before the window of `computed_tokens`, whether the rest then
        fits or not (vLLM: remove_skipped_blocks).
        """
        held = self._sequences[sequence]
        self._tables.give_back_skipped(held, computed_tokens)
        if self._tables.needed_to_grow(held, tokens) > self.free_blocks:
            return False
        if tokens > held.tokens:
            self._tables.copy_shared(held)
            self._tables.extend(held, tokens)
        return True

    def commit(self, sequence: Hashable, tokens: int) -> None:
        """Makes the full blocks among the first `tokens` tokens findable where their keys are known.

        vLLM does so when it allocates, before a step computes them; those that follow in the same step already hit. A state is
        that of the last token computed: it becomes findable only where `tokens` is the end of its block.
        """
        self._tables.commit(self._sequences[sequence], tokens)

    def merge(self, sequence: Hashable, *, from_tokens: int = 0) -> None:
        """Gives up complete blocks from `from_tokens` on for older ones of the same content, as SGLang's radix tree does.

        vLLM never does: there sequences that computed the same side by side keep a copy each.
        """
        self._tables.merge(self._sequences[sequence], from_tokens)

    def start_step(self) -> None:
        """A new step begins: states that the last one completed can be hit from now on (vLLM: new_step_starts)."""
        self._tables.fresh_states.clear()

    def free(self, sequence: Hashable, *, forget: bool = False) -> None:
        """Takes the sequence out; findable blocks that nobody else holds stay cached, its tail the first to be lost.

        With `forget` nothing that only it holds can be found again. A swapped one gives its host blocks back.
        """
        if sequence in self._swapped:
            _, marks = self._swapped.pop(sequence)
            self.swapped_blocks -= _blocks_in(marks)
            return
        held = self._sequences.pop(sequence)
        if forget:
            self._tables.forget(held)
        self._tables.let_go(held)

    def fork(self, sequence: Hashable, child: Hashable, *, keys: Sequence[int] | None = None) -> None:
        """A second sequence that goes on from where the first one is; they share every block until one of them writes.

        `keys` are the child's where they are known further than its parent's full blocks.
        """
        self._check_new(child)
        parent = self._sequences[sequence]
        held = HeldSequence(
            parent.keys[: parent.tokens // self.layout.key_tokens] if keys is None else keys,
            parent.boundary,
            len(parent.tables),
            encoder_tokens=parent.encoder_tokens,
            reachable=parent.reachable,
        )
        self._tables.share(parent, held)
        self._sequences[child] = held

    def write(self, sequence: Hashable) -> bool:
        """Copies what the sequence shares and will write into next: part-filled last blocks, and states."""
        held = self._sequences[sequence]
        if len(self._tables.shared_places(held)) > self.free_blocks:
            return False
        self._tables.copy_shared(held)
        return True

    def swap_out(self, sequence: Hashable) -> int:
        """Moves the sequence's blocks to the host and frees them; the tokens moved, 0 where the host has no room for them."""
        held = self._sequences[sequence]
        marks = self._tables.completeness(held)
        if self.swapped_blocks + _blocks_in(marks) > self.host_blocks:
            return 0
        del self._sequences[sequence]
        self._swapped[sequence] = held, marks
        self.swapped_blocks += _blocks_in(marks)
        self._tables.let_go(held)
        self.counters.swapped_out_tokens += held.logical_tokens
        return held.logical_tokens

    def swap_in(self, sequence: Hashable, *, keep_free_blocks: int = 0) -> bool:
        """Brings a swapped sequence back into blocks of its own, and makes findable what was."""
        held, marks = self._swapped[sequence]
        if _blocks_in(marks) + keep_free_blocks > self.free_blocks:
            return False
        del self._swapped[sequence]
        self.swapped_blocks -= _blocks_in(marks)
        self._tables.restore(held, marks)
        self._sequences[sequence] = held
        self.counters.swapped_in_tokens += held.logical_tokens
        return True

    def pin(self, sequence: Hashable) -> None:
        """Counts the sequence's tokens as kept for a later turn; it goes on holding its blocks until it is freed."""
        self._tables.pin(self._sequences[sequence])

    def unpin(self, sequence: Hashable) -> None:
        """The sequence runs again, or is about to be freed."""
        self._tables.unpin(self._sequences[sequence])

    def _check_new(self, sequence: Hashable) -> None:
        if sequence in self._sequences or sequence in self._swapped:
            raise ValueError(f"sequence {sequence!r} holds blocks already")

    def _hits_fresh_state(self, keys: Sequence[int], boundary: int, hit_tokens: int) -> bool:
        """Whether the hit's state is only being computed in this step: attention reads along, but a state is copied beforehand."""
        fresh = self._tables.fresh_states
        if not hit_tokens or not fresh:
            return False
        last = keys[hit_tokens // self.layout.key_tokens - 1]
        return any((number, boundary, last) in fresh for number, _ in self._lookup.groups)


def _blocks_in(marks: list[list[bool | None]]) -> int:
    return sum(mark is not None for table in marks for mark in table)
