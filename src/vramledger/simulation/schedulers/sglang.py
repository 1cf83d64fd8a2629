"""SGLang's scheduler, 0.5.23: prefill batches first, one partly prefilled request, retraction of the shortest output.

`managers/scheduler.py` (get_next_batch_to_run, update_running_batch) and `managers/schedule_batch.py` (retract_decode). A step is
either a prefill batch or one token of every running request (mixed chunks are off by default). A running request's prompt can be found
in the cache from the end of its prefill (chunk by chunk), its outputs from its own end. A retracted request goes to the
*end* of the queue. Not modelled: preemption by priority, the exact simulation for requests that ignore the end of text without a
cache, hits found while still waiting keeping a prefix fresh.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.protocol import StepPlan
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.schedulers.serving import (
    admitted,
    cached_tokens,
    ends_in_flight,
    preempted,
    scheduled,
    settled,
    unheld_hit_blocks,
)
from vramledger.simulation.schedulers.sglang_admission import (
    Answer,
    Decoding,
    NewTokenRatio,
    PrefillPass,
    Share,
    keep_order,
    output_room,
)
from vramledger.simulation.settings import SchedulerSettings


class BatchPlan(StepPlan):
    """A step of SGLang's: a prefill batch, or a decode batch."""

    __slots__ = ("is_prefill",)

    def __init__(self) -> None:
        super().__init__()
        self.is_prefill = False


class SglangScheduler:
    """Its rules over one pool; the pool's block is SGLang's page."""

    idle_blocks = 0

    def __init__(self, settings: SchedulerSettings, pool: BlockPool) -> None:
        self.pool = pool
        self.lag_steps = int(settings.async_scheduling)
        self.ratio = NewTokenRatio(settings)
        self._settings = settings
        self._page = pool.layout.groups[0].block_tokens
        self._waiting: list[Sequence] = []
        self._decoding: list[Sequence] = []
        # The last prefill batch, which joins the decoding ones at the next step, and the request of it that is not through.
        self._prefilled: list[Sequence] = []
        self._partial: Sequence | None = None
        self._is_full = False
        self._left = False
        # How far what each running sequence computed has been compared with what others had.
        self._merged_tokens: dict[int, int] = {}

    @property
    def running(self) -> Iterable[Sequence]:
        yield from self._decoding
        yield from (one for one in self._prefilled if one is not self._partial)
        if self._partial is not None:
            yield self._partial

    @property
    def waiting(self) -> Iterable[Sequence]:
        return self._waiting

    @property
    def running_count(self) -> int:
        return sum(1 for _ in self.running)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def submit(self, sequence: Sequence) -> None:
        """It joins the queue; an output that the empty pool could not hold is cut."""
        room = output_room(self.pool.layout.usable_blocks * self._page, sequence.prompt_tokens, self._page)
        sequence.max_output_tokens = min(sequence.max_output_tokens, room)
        sequence.output_tokens = min(sequence.output_tokens, room)
        self._waiting.append(sequence)

    def step(self, now_ps: int) -> StepPlan:
        self.pool.start_step()
        plan = BatchPlan()
        self._merge()
        self._prefill(plan)
        plan.is_prefill = bool(plan.scheduled)
        if not plan.is_prefill:
            self._decode(plan)
        if not plan.scheduled and not self._waiting and not self._decoding:
            self.ratio.reset()
        return plan

    def after_step(self, plan: StepPlan) -> list[Sequence]:
        ended = settled(plan)
        for sequence in ended:
            self._leave(sequence)
        if isinstance(plan, BatchPlan) and plan.is_prefill:
            for sequence, tokens, before, yields in plan.scheduled:
                if yields and sequence.is_running:
                    self._commit(sequence, before + tokens)
        return ended

    def abort(self, sequence: Sequence) -> None:
        if sequence.is_running:
            self._leave(sequence)
        else:
            self._waiting.remove(sequence)
            sequence.is_done = True

    def _leave(self, sequence: Sequence) -> None:
        """A running sequence ends; what it computed stays to be found."""
        if sequence is self._partial:
            self._partial = None
        for batch in (self._decoding, self._prefilled):
            if sequence in batch:
                batch.remove(sequence)
        self._left = True
        self._commit(sequence, min(sequence.computed_tokens, sequence.known_tokens - 1))
        self.pool.free(sequence.identity)
        self._merged_tokens.pop(sequence.identity, None)
        sequence.is_running = False
        sequence.is_done = True

    def _merge(self) -> None:
        """The last prefill batch joins the decoding requests; whoever left makes the batch not full again."""
        if self._partial is not None:
            self._commit(self._partial, self._partial.computed_tokens)
        joining = [one for one in self._prefilled if one is not self._partial]
        if self._left or len(joining) < len(self._prefilled):
            self._is_full = False
        if joining and not self._decoding:
            self._is_full = False
        self._decoding.extend(joining)
        self._prefilled = []
        self._left = False
        if not self._decoding:
            self._is_full = False

    def _prefill(self, plan: StepPlan) -> None:
        settings = self._settings
        places = settings.max_num_seqs - len(self._decoding)
        if self._partial is None:
            if self._is_full or not self._waiting:
                return
            if places <= 0:
                self._is_full = True
                return
        if settings.priority:
            self._waiting.sort(key=lambda one: (one.priority, one.sent_ps, one.identity))
        budget = PrefillPass(
            settings,
            page_tokens=self._page,
            available_tokens=self.pool.free_blocks * self._page,
            ratio=self.ratio.current,
            running=[_expected(one) for one in self._decoding],
        )
        if self._partial is not None:
            self._resume(self._partial, budget, plan)
        for sequence in list(self._waiting):
            if budget.answer is Answer.OTHER:
                break
            if len(plan.scheduled) >= places:
                self._is_full = True
            if self._is_full:
                break
            share = self._add(sequence, budget, plan)
            if share.answer is Answer.NO_TOKEN:
                self._is_full = bool(plan.scheduled or self._decoding)
            if share.answer is not Answer.CONTINUE:
                break

    def _resume(self, sequence: Sequence, budget: PrefillPass, plan: StepPlan) -> None:
        share = budget.resume(
            extend_tokens=sequence.known_tokens - sequence.computed_tokens,
            max_output_tokens=sequence.max_output_tokens,
        )
        covered = sequence.computed_tokens + share.tokens
        if not self.pool.grow(sequence.identity, covered, computed_tokens=sequence.computed_tokens):
            return  # It is parked; running requests go on and give way.
        plan.scheduled.append(scheduled(sequence, share.tokens, lags=bool(self.lag_steps)))
        self._prefilled.append(sequence)
        if not share.is_partial:
            self._partial = None

    def _add(self, sequence: Sequence, budget: PrefillPass, plan: StepPlan) -> Share:
        hit_tokens = cached_tokens(self.pool, sequence) if self._settings.prefix_caching else 0
        ready = max(hit_tokens, min(sequence.arrived_tokens, sequence.known_tokens - 1))
        share = budget.add(
            prefix_tokens=ready,
            extend_tokens=sequence.known_tokens - ready,
            max_output_tokens=sequence.max_output_tokens,
            generated_tokens=sequence.generated_tokens,
            pinned_tokens=unheld_hit_blocks(self.pool, sequence, hit_tokens) * self._page,
        )
        if share.tokens == 0:
            return share
        if not self.pool.open(
            sequence.identity,
            keys=sequence.keys if self._settings.prefix_caching else (),
            boundary=sequence.boundary,
            hit_tokens=hit_tokens,
            tokens=ready + share.tokens,
        ):
            return Share(0, False, Answer.NO_TOKEN)
        self._waiting.remove(sequence)
        admitted(sequence, ready, hit_tokens)
        plan.admitted.append(sequence)
        plan.scheduled.append(scheduled(sequence, share.tokens, lags=bool(self.lag_steps)))
        self._prefilled.append(sequence)
        if share.is_partial:
            self._partial = sequence
        return share

    def _decode(self, plan: StepPlan) -> None:
        served = [one for one in self._decoding if not (self.lag_steps and ends_in_flight(one))]
        if not served:
            return
        if len(served) < len(self._decoding):
            self._is_full = False
        if self._new_pages(served) > self.pool.free_blocks:
            if len(served) < len(self._decoding):
                return  # The step in flight frees the blocks of those that end with it.
            served = self._retract(served, plan)
        else:
            self.ratio.decay_step()
        for sequence in served:
            grown = self.pool.grow(
                sequence.identity, sequence.computed_tokens + 1, computed_tokens=sequence.computed_tokens
            )
            if not grown:
                raise RuntimeError("a decode batch that was found to fit does not")
            plan.scheduled.append(scheduled(sequence, 1, lags=bool(self.lag_steps)))

    def _retract(self, served: list[Sequence], plan: StepPlan) -> list[Sequence]:
        """Requests give way until the rest has its next pages: shortest output first, at least one, the last one too if even it does not fit."""
        order = keep_order([(one.generated_tokens, one.prompt_tokens) for one in served])
        kept = [served[place] for place in order]
        while len(kept) > 1:
            self._give_way(kept.pop(), plan)
            if self._new_pages(kept) <= self.pool.free_blocks:
                break
        if len(kept) == 1 and self._new_pages(kept) > self.pool.free_blocks:
            self._give_way(kept.pop(), plan)
        self._decoding = kept  # From now on in this order.
        self.ratio.retracted(_expected(one) for one in kept)
        self._is_full = False
        return list(kept)

    def _give_way(self, sequence: Sequence, plan: StepPlan) -> None:
        self.pool.free(sequence.identity)
        self._merged_tokens.pop(sequence.identity, None)
        preempted(sequence)
        plan.preempted.append(sequence)
        self._waiting.append(sequence)

    def _new_pages(self, sequences: Iterable[Sequence]) -> int:
        return sum(self.pool.needed_blocks(one.identity, one.computed_tokens + 1) for one in sequences)

    def _commit(self, sequence: Sequence, tokens: int) -> None:
        """What is computed can be found; what others computed beside it is held once."""
        if self._settings.prefix_caching:
            self.pool.commit(sequence.identity, tokens)
            self.pool.merge(sequence.identity, from_tokens=self._merged_tokens.get(sequence.identity, 0))
            self._merged_tokens[sequence.identity] = tokens // self._page * self._page


def _expected(sequence: Sequence) -> Decoding:
    return Decoding(sequence.max_output_tokens, sequence.generated_tokens)
