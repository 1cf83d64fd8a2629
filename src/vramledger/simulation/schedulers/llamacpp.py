"""llama.cpp's server: slots over cells that all of them may claim.

`tools/server/server-context.cpp` (get_available_slot, try_clear_idle_slots, update_slots). A request takes a free slot or waits in
order; nothing is reserved. A slot keeps its last conversation's cells until another one takes it or room is short. A step is a token of each
generating slot, then prompts in order of slots up to the batch. Where the cells run out, idle slots are cleared one by one, and
if that is not enough, *every* request in a slot ends with an error and all their cells are cleared. With cells of its own
for each slot (`max_num_seqs` times `max_model_len` of them) that cannot happen; with one unified cache, which each slot may
fill, it can. Cells are never shared between slots. Not modelled: the prompt cache in host memory, shifted contexts, slots that a
request names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Items

from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.protocol import StepPlan
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.schedulers.serving import admitted, scheduled, settled
from vramledger.simulation.settings import SchedulerSettings
from vramledger.units import ceil_div

SIMILARITY_PERCENT = 10
"""Share of a prompt that a slot must have to be chosen for it (--slot-prompt-similarity)."""


class Slot:
    """A place for one request; `keys` are the content that its cells hold, under the name `held`."""

    __slots__ = ("boundary", "computed_tokens", "held", "keys", "last_used", "number", "sequence")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sequence: Sequence | None = None
        self.held: int | None = None
        self.keys: Items[int] = ()
        self.boundary = 0
        self.computed_tokens = 0
        self.last_used = -1


class LlamacppScheduler:
    """`max_num_seqs` slots of at most `max_model_len` tokens each; `max_num_batched_tokens` is n_batch."""

    lag_steps = 0

    def __init__(self, settings: SchedulerSettings, pool: BlockPool) -> None:
        self.pool = pool
        self._settings = settings
        self._key_tokens = pool.layout.key_tokens
        self._slots = [Slot(number) for number in range(settings.max_num_seqs)]
        self._waiting: deque[Sequence] = deque()
        self._releases = 0

    @property
    def running(self) -> Iterable[Sequence]:
        return [slot.sequence for slot in self._slots if slot.sequence is not None]

    @property
    def waiting(self) -> Iterable[Sequence]:
        return self._waiting

    @property
    def idle_blocks(self) -> int:
        """What free slots keep of their last conversations."""
        held = [slot.held for slot in self._slots if slot.sequence is None and slot.held is not None]
        return sum(ceil_div(self.pool.tokens_of(name), self._key_tokens) for name in held)

    @property
    def running_count(self) -> int:
        return sum(slot.sequence is not None for slot in self._slots)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def submit(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def step(self, now_ps: int) -> StepPlan:
        plan = StepPlan()
        while True:
            self._fill_slots(plan)
            batch = self._batch()
            if self._has_room(batch):
                break
            self._fail(plan)
        for slot, tokens in batch:
            sequence = slot.sequence
            assert sequence is not None
            covered = sequence.computed_tokens + tokens
            self.pool.grow(sequence.identity, covered, computed_tokens=sequence.computed_tokens)
            plan.scheduled.append(scheduled(sequence, tokens, lags=False))
        return plan

    def after_step(self, plan: StepPlan) -> list[Sequence]:
        ended = settled(plan)
        for sequence in ended:
            self._release(self._slot_of(sequence))
        return ended

    def abort(self, sequence: Sequence) -> None:
        if sequence.is_running:
            self._release(self._slot_of(sequence))
        else:
            self._waiting.remove(sequence)
            sequence.is_done = True

    def _slot_of(self, sequence: Sequence) -> Slot:
        return next(slot for slot in self._slots if slot.sequence is sequence)

    def _release(self, slot: Slot) -> None:
        """A request leaves its slot, whose cells stay as they are."""
        sequence = slot.sequence
        assert sequence is not None
        slot.computed_tokens = min(sequence.computed_tokens, sequence.all_tokens)
        self.pool.commit(sequence.identity, slot.computed_tokens)
        slot.last_used = self._releases
        self._releases += 1
        self._take_out(slot, sequence)

    def _take_out(self, slot: Slot, sequence: Sequence) -> None:
        slot.sequence = None
        sequence.is_running = False
        sequence.is_done = True

    def _clear(self, slot: Slot) -> None:
        if slot.held is not None:
            self.pool.free(slot.held, forget=True)
        slot.held, slot.keys, slot.computed_tokens = None, (), 0

    def _fill_slots(self, plan: StepPlan) -> None:
        """Waiting requests take free slots: the one with most of the prompt, else the one unused for longest, which is cleared."""
        while self._waiting:
            idle = [slot for slot in self._slots if slot.sequence is None]
            if not idle:
                return
            sequence = self._waiting.popleft()
            slot, common_tokens = self._choice(idle, sequence)
            self._enter(slot, sequence, common_tokens)
            plan.admitted.append(sequence)

    def _choice(self, idle: list[Slot], sequence: Sequence) -> tuple[Slot, int]:
        best, best_tokens = None, 0
        for slot in idle:
            common = self._common_tokens(slot, sequence)
            if common > best_tokens and common * 100 > SIMILARITY_PERCENT * sequence.prompt_tokens:
                best, best_tokens = slot, common
        if best is not None:
            return best, best_tokens
        # Of equals the last one.
        return min(idle, key=lambda slot: (slot.last_used, -slot.number)), 0

    def _common_tokens(self, slot: Slot, sequence: Sequence) -> int:
        if not self._settings.prefix_caching or slot.boundary != self._boundary(slot, sequence):
            return 0
        same = 0
        for kept, wanted in zip(slot.keys, sequence.keys, strict=False):
            if kept != wanted:
                break
            same += 1
        # At least one token is computed, for without one there is nothing to sample from.
        tokens = min(same * self._key_tokens, slot.computed_tokens, sequence.prompt_tokens - 1)
        return tokens // self._key_tokens * self._key_tokens

    def _boundary(self, slot: Slot, sequence: Sequence) -> int:
        """What separates a slot's cells from all others'; below zero, where no request's own is."""
        return -1 - sequence.boundary * len(self._slots) - slot.number

    def _enter(self, slot: Slot, sequence: Sequence, common_tokens: int) -> None:
        boundary = self._boundary(slot, sequence)
        if not common_tokens:
            self._clear(slot)
        opened = self.pool.open(
            sequence.identity,
            keys=sequence.keys,
            boundary=boundary,
            hit_tokens=common_tokens,
            tokens=common_tokens,
        )
        if not opened:
            raise RuntimeError("cells that a slot holds cannot be kept by it")
        if common_tokens:
            self._clear(slot)
        slot.sequence, slot.held, slot.keys, slot.boundary = (
            sequence,
            sequence.identity,
            sequence.keys,
            boundary,
        )
        ready = max(common_tokens, min(sequence.arrived_tokens, sequence.known_tokens - 1))
        admitted(sequence, ready, common_tokens)

    def _batch(self) -> list[tuple[Slot, int]]:
        """Tokens by slot: one of each that generates, then prompts."""
        busy = [(slot, slot.sequence) for slot in self._slots if slot.sequence is not None]
        batch = [(slot, 1) for slot, one in busy if one.generated_tokens]
        left = self._settings.max_num_batched_tokens - len(batch)
        for slot, one in busy:
            if not one.generated_tokens and left > 0:
                tokens = min(one.known_tokens - one.computed_tokens, left)
                batch.append((slot, tokens))
                left -= tokens
        return batch

    def _has_room(self, batch: list[tuple[Slot, int]]) -> bool:
        """Whether the batch has cells, when as few idle slots as it takes are cleared for it."""
        needed = sum(
            self.pool.needed_blocks(slot.sequence.identity, slot.sequence.computed_tokens + tokens)
            for slot, tokens in batch
            if slot.sequence is not None
        )
        idle = [slot for slot in self._slots if slot.sequence is None and slot.held is not None]
        while needed > self.pool.free_blocks and idle:
            self._clear(idle.pop(0))
        return needed <= self.pool.free_blocks

    def _fail(self, plan: StepPlan) -> None:
        """Every request in a slot ends with "Context size has been exceeded"."""
        for slot in self._slots:
            sequence = slot.sequence
            if sequence is not None:
                self._take_out(slot, sequence)
                self._clear(slot)
                plan.failed.append(sequence)
        plan.admitted = [one for one in plan.admitted if one not in plan.failed]
