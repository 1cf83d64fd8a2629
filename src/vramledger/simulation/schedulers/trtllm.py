"""TensorRT-LLM's two schedulers in a row: which requests have blocks, and which of those run in this step.

`batch_manager/capacityScheduler.cpp`, `scheduledBlocksManager.h`, `microBatchScheduler.cpp` and their Python forms in
`_torch/pyexecutor/scheduler/scheduler.py` (1.3). Requests are active in order of arrival, at most `max_num_seqs` of them. Without
eviction a request starts only where it and all that run can be completed; at the first one that does not fit the pass ends.
With most utilisation only the next step must fit, and the last started request is paused for room. A whole prompt's
blocks are taken with its first chunk. Not modelled: adapters, beams of changing width, drafts, several windows at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

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
)
from vramledger.simulation.schedulers.trtllm_chunks import Context, context_chunks
from vramledger.simulation.schedulers.trtllm_needs import (
    blocks_of_first_step,
    blocks_of_next_step,
    blocks_to_completion,
)
from vramledger.simulation.settings import SchedulerSettings, Scheduling


class TrtllmScheduler:
    """GUARANTEED_NO_EVICT or MAX_UTILIZATION, by `settings.scheduling`."""

    joins_a_running_batch = True

    idle_blocks = 0

    def __init__(self, settings: SchedulerSettings, pool: BlockPool) -> None:
        self.pool = pool
        self.lag_steps = int(settings.async_scheduling)
        self._settings = settings
        self._block_tokens = pool.layout.groups[0].block_tokens
        self._window_tokens = pool.layout.groups[0].window_tokens
        # Every request that is not done, in order of arrival; the first `max_num_seqs` are the engine's active ones.
        self._requests: list[Sequence] = []
        # Tokens of each started request's context: its prompt, and after a pause what it had generated.
        self._context_tokens: dict[int, int] = {}

    @property
    def running(self) -> Iterable[Sequence]:
        return (one for one in self._requests if one.is_running)

    @property
    def waiting(self) -> Iterable[Sequence]:
        return (one for one in self._requests if not one.is_running)

    @property
    def running_count(self) -> int:
        return sum(one.is_running for one in self._requests)

    @property
    def waiting_count(self) -> int:
        return len(self._requests) - self.running_count

    def submit(self, sequence: Sequence) -> None:
        self._requests.append(sequence)
        if self._settings.priority:
            self._requests.sort(key=lambda one: (not one.is_running, one.priority, one.sent_ps, one.identity))

    def step(self, now_ps: int) -> StepPlan:
        self.pool.start_step()
        plan = StepPlan()
        active = [
            one
            for one in islice(self._requests, self._settings.max_num_seqs)
            if not (self.lag_steps and one.is_running and ends_in_flight(one))
        ]
        if self._settings.scheduling is Scheduling.TRTLLM_MAX_UTILIZATION:
            fitting = self._most_utilization(active, plan)
        else:
            fitting = self._no_evict(active)
        self._micro_batch(fitting, plan)
        return plan

    def after_step(self, plan: StepPlan) -> list[Sequence]:
        ended = settled(plan)
        for sequence, tokens, before, yields in plan.scheduled:
            if yields and sequence.is_running and before + tokens == self._context_tokens[sequence.identity]:
                self._commit(sequence, before + tokens)
        for sequence in ended:
            self.abort(sequence)
        return ended

    def abort(self, sequence: Sequence) -> None:
        self._requests.remove(sequence)
        if sequence.is_running:
            self._release(sequence)
            sequence.is_running = False
        sequence.is_done = True

    def _no_evict(self, active: list[Sequence]) -> list[Sequence]:
        """All that generate, then by arrival whoever can be completed beside them; the first that cannot ends the pass."""
        fitting = [one for one in active if self._generates(one)]
        free = self.pool.free_blocks - sum(self._to_completion(one, 0) for one in fitting)
        if fitting and not self.joins_a_running_batch:
            return fitting
        awaited = self._contributed(active)
        for sequence in active:
            if self._generates(sequence):
                continue
            hit_tokens = self._hit_tokens(sequence)
            if self._waits_for_a_block(sequence, hit_tokens, awaited):
                continue
            needed = self._to_completion(sequence, hit_tokens)
            if needed > free:
                break
            free -= needed
            fitting.append(sequence)
        return fitting

    def _most_utilization(self, active: list[Sequence], plan: StepPlan) -> list[Sequence]:
        """By arrival whoever has room for its next step; for want of room the last started one is paused."""
        fitting: list[Sequence] = []
        awaited = self._contributed(active)
        taken = 0
        place, end = 0, len(active)
        while place < end:
            sequence = active[place]
            hit_tokens = self._hit_tokens(sequence)
            if self._waits_for_a_block(sequence, hit_tokens, awaited):
                place += 1
                continue
            needed = self._next_step(sequence, hit_tokens)
            if taken + needed <= self.pool.free_blocks:
                taken += needed
                fitting.append(sequence)
                place += 1
                continue
            started = [at for at in range(place, end) if active[at].is_running]
            if not started:
                break
            end = started[-1]
            self._pause(active[end], plan)
        return fitting

    def _pause(self, sequence: Sequence, plan: StepPlan) -> None:
        self._release(sequence)
        preempted(sequence)
        plan.preempted.append(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Blocks go; what is computed in them stays to be found."""
        self._commit(sequence, min(sequence.computed_tokens, sequence.known_tokens - 1))
        self.pool.free(sequence.identity)
        del self._context_tokens[sequence.identity]

    def _micro_batch(self, fitting: list[Sequence], plan: StepPlan) -> None:
        """Of those with blocks: a token of each that generates, and prompts in chunks, as the step's tokens last."""
        settings = self._settings
        left = settings.max_num_batched_tokens
        generating: list[Sequence] = []
        contexts: list[Context] = []
        for sequence in fitting:
            if self._generates(sequence):
                if left < 1:
                    break
                generating.append(sequence)
                left -= 1
                continue
            hit_tokens = self._hit_tokens(sequence)
            context = Context(
                sequence.known_tokens - sequence.computed_tokens, max(hit_tokens, self._arrived(sequence))
            )
            if not settings.chunked_prefill:
                if context.tokens - context.ready_tokens > left:
                    break
                left -= context.tokens - context.ready_tokens
            contexts.append(context)
        chosen = [one for one in fitting if not self._generates(one)][: len(contexts)]
        chunks = (
            context_chunks(contexts, left, settings.max_num_batched_tokens, self._block_tokens)
            if settings.chunked_prefill
            else [context.tokens - context.ready_tokens for context in contexts]
        )
        for sequence in generating:
            covered = sequence.computed_tokens + 1
            if not self.pool.grow(sequence.identity, covered, computed_tokens=sequence.computed_tokens):
                raise RuntimeError("a request that was found to fit does not")
            plan.scheduled.append(scheduled(sequence, 1, lags=bool(self.lag_steps)))
        for sequence, tokens in zip(chosen, chunks, strict=True):
            if tokens:
                self._compute_context(sequence, tokens, plan)

    def _compute_context(self, sequence: Sequence, tokens: int, plan: StepPlan) -> None:
        if not sequence.is_running:
            hit_tokens = self._hit_tokens(sequence)
            ready = max(hit_tokens, self._arrived(sequence))
            if not self.pool.open(
                sequence.identity,
                keys=sequence.keys if self._settings.prefix_caching else (),
                boundary=sequence.boundary,
                hit_tokens=hit_tokens,
                tokens=sequence.known_tokens,
            ):
                return  # Blocks that it was to share went with a request paused in this step.
            self._context_tokens[sequence.identity] = sequence.known_tokens
            admitted(sequence, ready, hit_tokens)
            plan.admitted.append(sequence)
            tokens = min(tokens, sequence.known_tokens - ready)
        plan.scheduled.append(scheduled(sequence, tokens, lags=bool(self.lag_steps)))

    def _generates(self, sequence: Sequence) -> bool:
        """Whether its context is computed, or will be by the step in flight."""
        return sequence.is_running and sequence.computed_tokens >= self._context_tokens[sequence.identity]

    def _hit_tokens(self, sequence: Sequence) -> int:
        """Cached tokens of a request that has not started; none of one that has, which computes all the rest."""
        if sequence.is_running or not self._settings.prefix_caching:
            return 0
        return cached_tokens(self.pool, sequence)

    def _arrived(self, sequence: Sequence) -> int:
        return 0 if sequence.is_running else min(sequence.arrived_tokens, sequence.known_tokens - 1)

    def _to_completion(self, sequence: Sequence, hit_tokens: int) -> int:
        return blocks_to_completion(
            prompt_tokens=sequence.prompt_tokens,
            # The last token's KV is never written; the engine reserves for it all the same.
            max_output_tokens=sequence.max_output_tokens,
            held_blocks=self._held_blocks(sequence) + self._shared_blocks(sequence, hit_tokens),
            block_tokens=self._block_tokens,
            window_tokens=self._window_tokens,
            current_tokens=sequence.known_tokens,
        )

    def _next_step(self, sequence: Sequence, hit_tokens: int) -> int:
        if self._generates(sequence):
            return blocks_of_next_step(
                current_tokens=sequence.computed_tokens,
                output_tokens_left=sequence.prompt_tokens
                + sequence.max_output_tokens
                - sequence.computed_tokens,
                block_tokens=self._block_tokens,
                steps=1 + self.lag_steps,
            )
        if sequence.is_running:
            return 0  # Its prompt's blocks are there.
        whole = blocks_of_first_step(prompt_tokens=sequence.known_tokens, block_tokens=self._block_tokens)
        return whole - self._shared_blocks(sequence, hit_tokens)

    def _held_blocks(self, sequence: Sequence) -> int:
        if not sequence.is_running:
            return 0
        return len(self.pool.block_tables(sequence.identity)[0])

    def _shared_blocks(self, sequence: Sequence, hit_tokens: int) -> int:
        """Blocks of a hit that others hold: the only ones that cost nothing, for a cached one that nobody holds counts as free."""
        if not hit_tokens:
            return 0
        hit_blocks = hit_tokens // self._block_tokens
        return hit_blocks - self.pool.needed_blocks(
            sequence.identity,
            hit_tokens,
            keys=sequence.keys,
            boundary=sequence.boundary,
            hit_tokens=hit_tokens,
        )

    def _contributed(self, active: list[Sequence]) -> set[tuple[int, int]]:
        """The first block that each request still in its prompt will add to the cache."""
        return {
            block
            for one in active
            if one.is_running
            and not self._generates(one)
            and (block := self._next_block(one, one.computed_tokens))
        }

    def _waits_for_a_block(self, sequence: Sequence, hit_tokens: int, awaited: set[tuple[int, int]]) -> bool:
        """Whether a request that has not started should wait a step, because another one computes its next block now."""
        if sequence.is_running or not self._settings.prefix_caching:
            return False
        block = self._next_block(sequence, hit_tokens)
        if block is None:
            return False
        if block in awaited:
            return True
        awaited.add(block)
        return False

    def _next_block(self, sequence: Sequence, tokens: int) -> tuple[int, int] | None:
        """The first full block of its prompt that is not there, by boundary and identity."""
        place = tokens // self._block_tokens
        if not self._settings.prefix_caching or (place + 1) * self._block_tokens > sequence.prompt_tokens:
            return None
        return (sequence.boundary, sequence.keys[place]) if place < len(sequence.keys) else None

    def _commit(self, sequence: Sequence, tokens: int) -> None:
        if self._settings.prefix_caching:
            self.pool.commit(sequence.identity, tokens)
