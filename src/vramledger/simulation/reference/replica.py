"""One replica of an instance: a scheduler over a pool, and what a run wants to know of it. Pure: the caller passes the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from vramledger.admission.decision import Admission
from vramledger.simulation.outcome import PoolCounters, PoolSample, Status
from vramledger.simulation.reference.front import Front
from vramledger.simulation.reference.progress import Progress
from vramledger.simulation.reference.sampler import PoolState, Sampler
from vramledger.simulation.reference.view import View
from vramledger.simulation.schedulers.protocol import Scheduler, StepPlan, work_of
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.step_model import StepModel

Ended = Callable[["Replica", Sequence, Status, int], None]


class Replica:
    """Serves sequences step by step.

    `send` and `cancel` may come while a step runs and take effect when the next one begins. `begin` schedules and says how long
    the step takes, `finish` is its end. `ended` is called once for every sequence that ends.

    With a lag the step that begins was planned when the one before it began, so a sequence sent after that moment is not in
    it; only where no step was running is a new one planned at once (vLLM v1/engine/core.py, step_with_batch_queue).
    """

    def __init__(
        self,
        number: int,
        scheduler: Scheduler,
        step_model: StepModel,
        *,
        ended: Ended,
        front: Front | None = None,
        samples: int = 512,
    ) -> None:
        self.number = number
        self.scheduler = scheduler
        self._step_model = step_model
        self._ended = ended
        self._front = front
        self._here: set[int] = set()
        self._inbox: deque[Sequence] = deque()
        self._cancelled: list[tuple[Sequence, Status]] = []
        self._plans: deque[StepPlan] = deque()
        self._begun_ps = 0
        self._progress = Progress()
        self._sampler = Sampler(samples, self._state())
        self._hit_tokens = 0
        self._looked_up_tokens = 0
        self._preemptions = 0
        self._recomputed_tokens = 0
        self._computed_tokens = 0
        self._steps = 0
        self._has_rested = False

    @property
    def free_blocks(self) -> int:
        return self.scheduler.pool.free_blocks

    @property
    def used_blocks(self) -> int:
        return self.scheduler.pool.used_blocks

    @property
    def running_count(self) -> int:
        return self.scheduler.running_count

    @property
    def waiting_count(self) -> int:
        return self.scheduler.waiting_count + self._held_count + len(self._inbox)

    def hit_tokens(self, sequence: Sequence) -> int:
        """Tokens of what it knows that the cache holds."""
        return self.scheduler.pool.hit_tokens(
            sequence.keys, boundary=sequence.boundary, limit_tokens=sequence.known_tokens - 1
        )

    @property
    def _held_count(self) -> int:
        return len(self._front) if self._front is not None else 0

    def unfinished(self) -> Iterator[Sequence]:
        """Everything that was sent and has not ended."""
        yield from self.scheduler.running
        yield from self.queued()

    def queued(self) -> Iterator[Sequence]:
        """Everything that was sent and holds no blocks."""
        yield from self.scheduler.waiting
        if self._front is not None:
            yield from self._front
        yield from self._inbox

    @property
    def is_at_rest(self) -> bool:
        """Whether a step was begun since the last sequence left, and there was nothing to do: nothing changes until one is sent."""
        return self._has_rested and not self._here

    def send(self, sequence: Sequence) -> None:
        """The sequence joins the queue when the next step is planned."""
        self._here.add(sequence.identity)
        self._inbox.append(sequence)

    def cancel(self, sequence: Sequence, status: Status) -> None:
        """The sequence ends with `status` when the next step begins, unless it has left by then."""
        self._cancelled.append((sequence, status))

    def begin(self, now_ps: int) -> int | None:
        """A step begins, if there is anything to do: its duration, or None."""
        self._has_rested = False
        while True:
            self._let_in(now_ps)
            plan = self.scheduler.step(now_ps)
            self._sampler.record(now_ps, self._state())
            self._count(plan, now_ps)
            for sequence in plan.failed:
                self._leave(sequence, Status.FAILED, now_ps)
            if plan.scheduled:
                self._plans.append(plan)
                if self._progress.is_livelocked(plan, self.unfinished()):
                    self.give_up(now_ps)
                    continue
                if len(self._plans) > 1:
                    self._evaluate(now_ps)
                self._begun_ps = now_ps
                return self._step_model.step_ps(**work_of(plan.scheduled)._asdict()) + plan.extra_ps
            if self._plans:  # Nothing more to plan before the outcome of the step before is known.
                self._evaluate(now_ps)
            elif not plan.preempted:
                self._has_rested = True
                return None

    def finish(self, now_ps: int) -> None:
        """The step begun last is computed. With a lag its outcome is looked at when the next one has been planned."""
        if not self.scheduler.lag_steps:
            self._evaluate(now_ps)

    def give_up(self, now_ps: int) -> None:
        """Everything that is here ends as livelocked."""
        self._plans.clear()
        for sequence in list(self.unfinished()):
            self._drop(sequence, Status.LIVELOCKED, now_ps)

    def counters(self) -> PoolCounters:
        """Sums of the run so far."""
        pool = self.scheduler.pool.counters
        return PoolCounters(
            hit_tokens=self._hit_tokens,
            looked_up_tokens=self._looked_up_tokens,
            copied_blocks=pool.copied_blocks,
            evicted_blocks=pool.evicted_blocks,
            preemptions=self._preemptions,
            recomputed_tokens=self._recomputed_tokens,
            swapped_out_tokens=pool.swapped_out_tokens,
            swapped_in_tokens=pool.swapped_in_tokens,
            steps=self._steps,
            computed_tokens=self._computed_tokens,
        )

    def samples(self, end_ps: int) -> tuple[PoolSample, ...]:
        """The pool over time, up to and at the end."""
        return self._sampler.close(end_ps, self.number)

    def _let_in(self, now_ps: int) -> None:
        """Cancellations, then who was held back, then who arrived."""
        cancelled, self._cancelled = self._cancelled, []
        for sequence, status in cancelled:
            if sequence.identity in self._here:
                self._drop(sequence, status, now_ps)
        planned_ps = self._begun_ps if self._plans else now_ps
        front = self._front
        if front is None:
            while self._inbox and self._inbox[0].sent_ps <= planned_ps:
                self.scheduler.submit(self._inbox.popleft())
            return
        front.progress(self.scheduler.running, now_ps)
        view = View(self)
        self._heed(front.settle(view, now_ps), now_ps)
        while self._inbox and self._inbox[0].sent_ps <= planned_ps:
            branches = [self._inbox.popleft()]
            while self._inbox and self._inbox[0].number == branches[0].number:
                branches.append(self._inbox.popleft())
            self._heed(front.arrive(branches, view, now_ps), now_ps)

    def _heed(self, answers: Iterable[tuple[Admission, Sequence]], now_ps: int) -> None:
        for answer, sequence in answers:
            if answer is Admission.ACCEPT:
                self.scheduler.submit(sequence)
            else:
                sequence.is_done = True
                self._here.remove(sequence.identity)
                self._ended(self, sequence, Status.REJECTED, now_ps)

    def _count(self, plan: StepPlan, now_ps: int) -> None:
        for sequence in plan.admitted:
            if sequence.admitted_ps < 0:
                sequence.admitted_ps = now_ps
                self._hit_tokens += sequence.hit_tokens
                self._looked_up_tokens += sequence.known_tokens
        self._preemptions += len(plan.preempted)
        self._steps += bool(plan.scheduled)
        for sequence, tokens, before, _ in plan.scheduled:
            after = before + tokens
            again = max(0, min(after, sequence.high_water_tokens) - before)
            sequence.high_water_tokens = max(sequence.high_water_tokens, after)
            sequence.recomputed_tokens += again
            self._recomputed_tokens += again
            self._computed_tokens += tokens
            self._progress.note(tokens - again, again)

    def _evaluate(self, now_ps: int) -> None:
        plan = self._plans.popleft()
        for share in plan.scheduled:
            sequence = share.sequence
            if share.yields and sequence.first_token_ps < 0 and not sequence.is_done:
                sequence.first_token_ps = now_ps
        for sequence in self.scheduler.after_step(plan):
            self._leave(sequence, Status.FINISHED, now_ps)

    def _drop(self, sequence: Sequence, status: Status, now_ps: int) -> None:
        if sequence in self._inbox:
            self._inbox.remove(sequence)
        elif self._front is None or sequence not in self._front:
            self.scheduler.abort(sequence)
        sequence.is_done = True
        self._leave(sequence, status, now_ps)

    def _leave(self, sequence: Sequence, status: Status, now_ps: int) -> None:
        self._here.remove(sequence.identity)
        if self._front is not None:
            self._front.leave(sequence, is_finished=status is Status.FINISHED, now_ps=now_ps)
        self._ended(self, sequence, status, now_ps)

    def _state(self) -> PoolState:
        pool, scheduler = self.scheduler.pool, self.scheduler
        idle_blocks = scheduler.idle_blocks
        return PoolState(
            used_blocks=pool.used_blocks - idle_blocks,
            cached_blocks=pool.cached_blocks + idle_blocks,
            free_blocks=pool.free_blocks - pool.cached_blocks,
            running=scheduler.running_count,
            waiting=scheduler.waiting_count + self._held_count,
            logical_tokens=pool.sequence_tokens,
            physical_tokens=pool.distinct_tokens,
        )
