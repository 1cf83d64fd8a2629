"""vLLM V1's scheduler: `v1/core/sched/scheduler.py` and what `kv_cache_manager.allocate_slots` decides for it.

One step serves the running sequences in order, then admits from the head of the queue while tokens, places and blocks last.
A running sequence without a block preempts: the newest, or by priority the worst, and in such a step nothing is admitted. A
waiting one without blocks stops the queue (head-of-line blocking). Compared step by step with the engine's own:
tools/fidelity/vllm_scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.protocol import Scheduled, StepPlan
from vramledger.simulation.schedulers.queues import ArrivalQueue, PriorityQueue, WaitingQueue
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.settings import SchedulerSettings


class VllmScheduler:
    """The rules of 0.19 to 0.32 (what differs by release is in the settings)."""

    idle_blocks = 0

    def __init__(self, settings: SchedulerSettings, pool: BlockPool) -> None:
        self.pool = pool
        self.lag_steps = int(settings.async_scheduling)
        self._settings = settings
        self._running: list[Sequence] = []
        self._waiting: WaitingQueue = PriorityQueue() if settings.priority else ArrivalQueue()
        self._watermark_blocks = int(settings.watermark * pool.layout.num_blocks)
        self._state_tokens = next(
            (group.block_tokens for group in pool.layout.groups if group.keeps_states), 0
        )

    @property
    def running(self) -> Iterable[Sequence]:
        return self._running

    @property
    def waiting(self) -> Iterable[Sequence]:
        return self._waiting

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def submit(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def step(self, now_ps: int) -> StepPlan:
        plan = StepPlan()
        self.pool.start_step()
        chunk = self._long_prefill_chunk()
        budget = self._serve_running(plan, self._settings.max_num_batched_tokens, chunk)
        if not plan.preempted:
            self._admit(plan, budget, chunk)
        for share in plan.scheduled:
            self._advance(share)
        return plan

    def after_step(self, plan: StepPlan) -> list[Sequence]:
        ended = []
        for sequence, tokens, _, yields in plan.scheduled:
            sequence.in_flight_tokens -= tokens
            is_stale = sequence.stale_tokens > 0
            if is_stale:
                sequence.stale_tokens -= tokens
            if sequence.is_done or not yields:
                continue
            sequence.generated_tokens += 1
            if not is_stale and self.lag_steps:
                sequence.placeholders -= 1
            if sequence.is_running and self.lag_steps:
                self._commit(sequence, sequence.computed_tokens - sequence.placeholders)
            if sequence.generated_tokens == sequence.output_tokens:
                self.abort(sequence)
                ended.append(sequence)
        return ended

    def abort(self, sequence: Sequence) -> None:
        if sequence.is_running:
            self._running.remove(sequence)
            sequence.is_running = False
            self.pool.free(sequence.identity)
        else:
            self._waiting.remove(sequence)
        sequence.is_done = True

    def _long_prefill_chunk(self) -> int:
        """Most tokens of one long prefill in a step, 0 for no bound: a request that is alone starves nobody (since 0.31)."""
        settings = self._settings
        if settings.long_prefill_alone_unbounded and len(self._running) + len(self._waiting) <= 1:
            return 0
        return settings.long_prefill_token_threshold

    def _serve_running(self, plan: StepPlan, budget: int, chunk: int) -> int:
        """Phase one; returns the tokens left."""
        place = 0
        shares: dict[int, Scheduled] = {}
        while place < len(self._running) and budget > 0:
            sequence = self._running[place]
            tokens = self._tokens_of_running(sequence, budget, chunk)
            if tokens == 0:
                place += 1
                continue
            while not self._grown(sequence, tokens):
                victim_place = self._victim()
                victim = self._running.pop(victim_place)
                if victim_place < place:
                    place -= 1
                undone = shares.pop(victim.identity, None)
                budget += undone.tokens if undone else 0
                self._preempt(victim)
                plan.preempted.append(victim)
                if victim is sequence:
                    break
            else:
                shares[sequence.identity] = self._share(sequence, tokens)
                budget -= tokens
                place += 1
                continue
            if not (self._settings.priority and self._settings.priority_goes_on):
                break
        plan.scheduled.extend(shares.values())
        return budget

    def _tokens_of_running(self, sequence: Sequence, budget: int, chunk: int) -> int:
        if (
            sequence.placeholders > 0
            and sequence.computed_tokens + 2 - sequence.placeholders
            >= sequence.prompt_tokens + sequence.max_output_tokens
        ):
            return 0  # The step in flight brings its last token for certain.
        tokens = sequence.known_tokens + sequence.placeholders - sequence.computed_tokens
        if 0 < chunk < tokens:
            tokens = chunk
        tokens = min(tokens, budget, self._settings.max_model_len - sequence.computed_tokens - 1)
        return self._up_to_a_state(sequence, sequence.computed_tokens, tokens)

    def _grown(self, sequence: Sequence, tokens: int) -> bool:
        """Room for `tokens` more; what they fill can be found from now on."""
        computed = sequence.computed_tokens
        wanted = min(computed + tokens, self._settings.max_model_len)
        if not self.pool.grow(
            sequence.identity, wanted, computed_tokens=max(0, computed - sequence.in_flight_tokens)
        ):
            return False
        self._commit(sequence, min(computed + tokens, sequence.known_tokens))
        return True

    def _victim(self) -> int:
        """Place of the running sequence to preempt: the last, or the worst by (priority, time), the first of equals."""
        if not self._settings.priority:
            return len(self._running) - 1
        return max(
            range(len(self._running)),
            key=lambda place: (self._running[place].priority, self._running[place].sent_ps),
        )

    def _preempt(self, sequence: Sequence) -> None:
        """Always by recompute: blocks go (full ones stay findable), outputs stay, and it comes back first."""
        self.pool.free(sequence.identity)
        sequence.is_running = False
        sequence.computed_tokens = 0
        sequence.stale_tokens = sequence.in_flight_tokens
        sequence.placeholders = 0
        sequence.preemptions += 1
        self._waiting.put_back(sequence)

    def _admit(self, plan: StepPlan, budget: int, chunk: int) -> None:
        """Phase two."""
        settings = self._settings
        skipped: list[Sequence] = []
        while budget > 0 and self._waiting and len(self._running) < settings.max_num_seqs:
            sequence = self._waiting.first
            if sequence.stale_tokens:
                # A token of before its preemption is still on its way: it is looked at again in the next step.
                skipped.append(self._waiting.take())
                continue
            hit_tokens = self._hit_tokens(sequence)
            ready_tokens = max(hit_tokens, min(sequence.arrived_tokens, sequence.known_tokens - 1))
            tokens = sequence.known_tokens - ready_tokens
            if 0 < chunk < tokens:
                tokens = chunk
            if not settings.chunked_prefill and tokens > budget:
                break
            tokens = self._up_to_a_state(sequence, ready_tokens, min(tokens, budget))
            if not tokens or not self._opened(sequence, hit_tokens, ready_tokens + tokens):
                break
            self._waiting.take()
            self._running.append(sequence)
            sequence.is_running = True
            sequence.computed_tokens = ready_tokens
            plan.admitted.append(sequence)
            plan.scheduled.append(self._share(sequence, tokens))
            budget -= tokens
            sequence.arrived_tokens = 0
            if sequence.admitted_ps < 0:
                sequence.hit_tokens = hit_tokens
        for sequence in reversed(skipped):
            self._waiting.put_back(sequence)

    def _hit_tokens(self, sequence: Sequence) -> int:
        """Cached tokens it starts from: at least one token is computed, for without one there is nothing to sample from."""
        if not self._settings.prefix_caching:
            return 0
        hit_tokens, longest = self.pool.shared_prefix(
            sequence.keys, boundary=sequence.boundary, limit_tokens=sequence.known_tokens - 1
        )
        sequence.junction_tokens = longest if longest > hit_tokens else 0
        return hit_tokens

    def _up_to_a_state(self, sequence: Sequence, start: int, tokens: int) -> int:
        """Fewer tokens where a prefill has to stop so that a recurrent state is kept (_mamba_block_aligned_split); 0: none fit.

        States are written where a chunk ends, so chunks end at block boundaries, the last one at which a state can be hit again is
        never passed in mid-chunk, and neither is the boundary below the place where prefixes part.
        """
        size = self._state_tokens
        prefill_end = max(sequence.prompt_tokens, sequence.known_tokens - 1)
        if not size or start >= prefill_end:
            return tokens
        settings = self._settings
        end = start + tokens
        if end < prefill_end:
            largest = settings.max_num_batched_tokens
            if settings.long_prefill_token_threshold:
                largest = min(largest, settings.long_prefill_token_threshold)
            aligned = end // size * size
            if aligned > start or size <= largest:
                end = aligned
        stops = [(sequence.known_tokens - int(settings.states_for_resend)) // size * size]
        if start % size:
            stops.append((start // size + 1) * size)
        if start < sequence.junction_tokens < end:
            stops.append(start + (sequence.junction_tokens - start) // size * size)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(0, end - start)

    def _opened(self, sequence: Sequence, hit_tokens: int, tokens: int) -> bool:
        """Blocks for the cached tokens and the first chunk, where the whole of what is known has room as well."""
        keep = self._watermark_blocks if self._running else 0
        if self._settings.reserve_full_prompt:
            whole = self.pool.needed_blocks(
                sequence.identity,
                min(sequence.known_tokens, self._settings.max_model_len),
                keys=sequence.keys,
                boundary=sequence.boundary,
                hit_tokens=hit_tokens,
                is_capped=True,
            )
            if whole + keep > self.pool.free_blocks:
                return False
        if not self.pool.open(
            sequence.identity,
            keys=sequence.keys if self._settings.prefix_caching else (),
            boundary=sequence.boundary,
            hit_tokens=hit_tokens,
            tokens=tokens,
            keep_free_blocks=keep,
            reachable=(sequence.prompt_tokens - 1, sequence.junction_tokens),
        ):
            return False
        self._commit(sequence, min(tokens, sequence.known_tokens))
        return True

    def _commit(self, sequence: Sequence, tokens: int) -> None:
        if self._settings.prefix_caching:
            self.pool.commit(sequence.identity, tokens)

    def _share(self, sequence: Sequence, tokens: int) -> Scheduled:
        before = sequence.computed_tokens
        return Scheduled(
            sequence, tokens, before, before + tokens >= sequence.known_tokens + sequence.placeholders
        )

    def _advance(self, share: Scheduled) -> None:
        sequence, tokens, before, yields = share
        sequence.computed_tokens = before + tokens
        sequence.in_flight_tokens += tokens
        if yields and self.lag_steps:
            sequence.placeholders += 1
