"""One engine behind the gateway: its policy, its books beside its word, and whether it takes requests."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec.structs import replace

from vramledger.admission.candidate import Candidate
from vramledger.admission.policy import Policy
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.engines.full_pool import WhenFull
from vramledger.gateway.admitter import RequestFacts
from vramledger.gateway.live.cached_prefixes import CachedPrefixes
from vramledger.gateway.live.candidates import PS_PER_NS, Sizes, candidate_of, sizes_of
from vramledger.gateway.live.capacity import Capacity
from vramledger.gateway.live.engine_state import EngineState
from vramledger.gateway.live.reconciling import Reconciled
from vramledger.gateway.live.service_times import LearnedTimes
from vramledger.gateway.live.view import LiveView
from vramledger.gateway.memory_facts import with_memory
from vramledger.gateway.pace import ReleasePace
from vramledger.gateway.shared.budget import Budget, nobody
from vramledger.gateway.shared.grant import Grant, Standing
from vramledger.gateway.snapshot import InstanceState, MemoryFacts
from vramledger.units import ceil_div

TIMES_UNREACHABLE = 2
"""So many vain questions in a row, and it is down."""


class Condition(Enum):
    OPENING = "opening"
    """It has not said yet what it has."""
    UP = "up"
    DOWN = "down"
    """No connection can be made."""
    DRAINING = "draining"
    """It finishes what it has, by its operator's word."""


class Instance:
    """`settings_for` makes a policy's settings of what the engine has. All calls come from one thread, in order of time."""

    def __init__(
        self,
        name: str,
        place: int,
        settings_for: Callable[[Capacity], PolicySettings],
        budget: Budget | None = None,
    ) -> None:
        self.name = name
        self.place = place
        self.engine = ""
        """Which it is, as far as is known."""
        self.ask_now: Callable[[], None] = nobody
        """Has it asked at once whether it is there."""
        self.is_suspect = False
        """A request to it failed, and it was not asked since."""
        self.budget = budget
        """Where other gateways stand before it as well: what of it is this one's."""
        self.condition = Condition.OPENING
        self.capacity: Capacity | None = None
        self.memory = MemoryFacts()
        """What fills its devices, as far as it says."""
        self.times = LearnedTimes()
        self.pace = ReleasePace()
        self.reconciled = Reconciled()
        self.prefixes = CachedPrefixes(0, 1)
        self.restarts = 0
        self.readings = 0
        self.failed_readings = 0
        self.silent = 0
        """Admitted requests that do not stream: how far they are is told at their end."""
        self.dead_before_ns = 0
        """What was admitted before that has ended with the engine that had it."""
        self._settings_for = settings_for
        self._settings: PolicySettings | None = None
        self._policy: Policy | None = None
        self._view: LiveView | None = None
        self._sizes = Sizes(1, 1, 1)
        self._unreachable = 0

    @property
    def takes_new(self) -> bool:
        return self.condition is Condition.UP and self._policy is not None

    @property
    def policy(self) -> Policy:
        assert self._policy is not None
        return self._policy

    @property
    def settings(self) -> PolicySettings | None:
        """What its policy goes by; None until it is known what the engine has."""
        return self._settings

    @property
    def block_tokens(self) -> int:
        return self._sizes.block_tokens

    @property
    def is_open(self) -> bool:
        return self._policy is not None

    def open(self, capacity: Capacity) -> None:
        """The engine has so much. Where that differs from before, a new policy begins with nothing admitted and nothing learned."""
        if capacity == self.capacity and self._policy is not None:
            return
        self.restarts += self.is_open
        self.capacity, self.engine = capacity, capacity.engine
        self._settings = self._settings_for(capacity)
        self._measure(self._settings)
        self._policy = Policy(self._settings, self.times)
        self.reconciled = Reconciled(is_patient=capacity.when_full is not WhenFull.FAIL)
        self.prefixes = CachedPrefixes(capacity.layout.usable_blocks, capacity.layout.key_tokens)
        self._view = LiveView(self._settings, self._policy, self.reconciled, self.prefixes)
        self._view.budget = self.budget
        self.silent = 0
        self._offer()
        if self.condition is Condition.OPENING:
            self.condition = Condition.UP

    def adopt(self) -> None:
        """Goes by what the settings' maker says now. Raises InputError for what cannot change while requests are served."""
        if self.capacity is not None and self._policy is not None:
            settings = self._settings_for(self.capacity)
            self._policy.adopt(settings)
            self._settings = settings
            self._measure(settings)

    def _measure(self, settings: PolicySettings) -> None:
        self._sizes = sizes_of(
            settings.layout, limit_blocks=settings.limit_blocks, safety_tokens=settings.safety_tokens
        )

    def drain(self) -> None:
        """It is given no more."""
        self.condition = Condition.DRAINING

    def view(self, now_ns: int) -> LiveView:
        """What its policy sees now."""
        view = self._view
        assert view is not None
        view.now_ns = now_ns
        view.has_silent = self.silent > 0
        policy = self.policy
        policy.is_careful = self.reconciled.is_careful(now_ns)
        if self.budget is not None:
            policy.places = self.budget.places
        return view

    def want(self, now_ns: int) -> None:
        """Tells whoever shares the instance out what could be used of it."""
        if self.budget is None:
            return
        policy, view, budget = self.policy, self.view(now_ns), self.budget
        next_blocks, next_places = policy.next_need(view, now_ns * PS_PER_NS)
        # What is reserved is kept, as far as it was granted: a learned length is one of many that are not all reached.
        held, most = policy.held_blocks, policy.most_blocks
        if policy.keeps_most:
            held = max(held, min(most, budget.blocks))
        held_places = policy.load.decode_seqs
        waiting = policy.queued_count
        if waiting:
            next_blocks += view.beyond_blocks
        budget.want(
            held
            + max(next_blocks, ceil_div(policy.queued_tokens, self.block_tokens) + waiting if waiting else 0),
            held_places + max(next_places, waiting),
            held_blocks=held,
            held_places=held_places,
            next_blocks=next_blocks,
            next_places=next_places,
        )

    def _offer(self) -> None:
        if self.budget is not None and self.capacity is not None and self._settings is not None:
            # Which of its starts it is no engine says, and a count of one's own means nothing to other gateways.
            self.budget.offer(self._settings.limit_blocks, self.capacity.max_running)

    def candidate(self, facts: RequestFacts, cohort: str) -> Candidate:
        capacity, settings = self.capacity, self._settings
        assert capacity is not None and settings is not None
        return candidate_of(
            facts,
            capacity,
            self._sizes,
            cohort,
            is_strict=settings.reservation is Reservation.NO_EVICT or self.policy.is_careful,
        )

    def keep_pace(self, now_ns: int) -> None:
        """After each decision and each release."""
        policy = self.policy
        self.pace.at(now_ns, is_busy=policy.admitted_count > 0, is_waited=policy.queued_count > 0)

    def explained_blocks(self) -> int:
        """The most that the engine may hold of what was admitted."""
        policy = self.policy
        return max(policy.held_blocks, policy.most_blocks) if self.silent else policy.held_blocks

    def going(self, now_ns: int) -> None:
        """A request is about to leave the books."""
        if self.reconciled.state is not None:
            self.reconciled.books_had(self.explained_blocks(), now_ns)

    def answered(self, state: EngineState, *, held_blocks: int, explained_blocks: int) -> bool:
        """It was asked and answered; the counts are the books' of when it was. True if it is another engine than before."""
        before = self.reconciled.state
        was_down = self.condition is Condition.DOWN
        is_new = before is not None and (was_down or state.is_of_a_later_start_than(before))
        if is_new and before is not None:
            self.restarts += 1
            self.dead_before_ns = before.asked_ns
            self.reconciled.forget()
            self.prefixes.forget()
        self.readings += 1
        hits = _total(state, "total_prefix_hit_tokens")
        if hits is not None:
            self.prefixes.hits_told(hits)
        self._reached()
        self.reconciled.told(
            state,
            held_blocks=held_blocks,
            explained_blocks=max(explained_blocks, self.explained_blocks()) if self.is_open else 0,
            unsure_blocks=self.policy.unsure_blocks if self.is_open else 0,
        )
        return is_new

    def suspect(self) -> None:
        """A request failed as though it were gone: until it was asked, none that waits is sent there."""
        if self.condition is Condition.UP:
            self.is_suspect = True
            self.ask_now()

    def unanswered(self, *, is_unreachable: bool) -> None:
        """It was asked in vain. Silence makes its word old; only where no connection can be made is it down."""
        self.failed_readings += 1
        self._unreachable = self._unreachable + 1 if is_unreachable else 0
        is_gone = self._unreachable >= TIMES_UNREACHABLE or (is_unreachable and self.is_suspect)
        if is_gone and self.condition is Condition.UP:
            self.condition = Condition.DOWN
        self.is_suspect = False

    def _reached(self) -> None:
        self._unreachable = 0
        self.is_suspect = False
        if self.condition is Condition.DOWN:
            self.condition = Condition.UP

    def snapshot(self, now_ns: int) -> InstanceState:
        """The instance in numbers."""
        capacity, policy, reconciled = self.capacity, self._policy, self.reconciled
        told = InstanceState(
            name=self.name,
            engine=self.engine,
            is_up=self.condition in (Condition.UP, Condition.DRAINING),
            total_restarts=self.restarts,
            total_readings=self.readings,
            total_failed_readings=self.failed_readings,
        )
        if isinstance(self.budget, Grant):
            told = replace(
                told,
                granted_blocks=self.budget.blocks,
                other_gateways_blocks=self.budget.other_blocks,
                is_granted=self.budget.standing is Standing.GRANTED,
                total_lapses=self.budget.lapses,
            )
        if capacity is None or policy is None or self._settings is None:
            return told
        state, usable = reconciled.state, capacity.layout.usable_blocks
        # Of one that is gone nobody knows what it does; what it had counted is kept.
        present = None if self.condition is Condition.DOWN else state
        used = present.used_blocks if present is not None else None
        snapshot = replace(
            told,
            age_ns=reconciled.age_ns(now_ns),
            block_size=capacity.layout.key_tokens,
            total_blocks=usable,
            used_blocks=used,
            free_blocks=None if used is None else usable - used,
            cached_blocks=present.kept_blocks if present is not None else None,
            running_requests=present.running_count if present is not None else None,
            waiting_requests=present.waiting_count if present is not None else None,
            booked_blocks=policy.held_blocks,
            reserved_blocks=policy.most_blocks,
            limit_blocks=self._settings.limit_blocks,
            admitted_requests=policy.admitted_count,
            queued_requests=policy.queued_count,
            foreign_blocks=reconciled.foreign_blocks,
            doubt_blocks=reconciled.doubt_blocks(usable, now_ns),
            disagreement_blocks=reconciled.disagreement_blocks,
            is_careful=reconciled.is_careful(now_ns),
            physical_tokens=None if used is None else used * capacity.layout.key_tokens,
            logical_tokens=policy.load.kv_tokens,
            total_prompt_tokens=_total(state, "total_prompt_tokens"),
            total_output_tokens=_total(state, "total_generated_tokens"),
            total_reused_tokens=_total(state, "total_prefix_hit_tokens"),
            total_evicted_tokens=_total(state, "total_evicted_tokens"),
            total_preempted_requests=_total(state, "total_preempted_requests"),
            total_preempted_tokens=_total(
                state, "total_preempted_prompt_tokens", "total_preempted_generated_tokens"
            ),
            total_recomputed_tokens=_total(state, "total_recomputed_prompt_tokens"),
        )
        return with_memory(snapshot, self.memory)


def _total(state: EngineState | None, *names: str) -> int | None:
    """A counter of the engine, or several together; None where it does not tell all of them."""
    if state is None or any(name not in state.totals for name in names):
        return None
    return int(sum(state.totals[name] for name in names))
