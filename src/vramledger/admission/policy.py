"""The admission policy: what is let in, what waits, what is refused, and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.admission.candidate import Candidate
from vramledger.admission.case import Case
from vramledger.admission.coming import Coming
from vramledger.admission.deadlines import Deadlines, Possible
from vramledger.admission.decision import Admission, Decision, Rule
from vramledger.admission.fair_queue import FairQueue
from vramledger.admission.protocol import AdmissionView
from vramledger.admission.room import Room
from vramledger.admission.service_time import Load, ServiceTime
from vramledger.admission.settings import ADOPTED, PolicySettings, Reservation
from vramledger.admission.triage import Rate, Triage
from vramledger.errors import InputError


class Policy:
    """Admits by the future peak of the pool. See `settings.PolicySettings` for what it goes by.

    Within each of two lines (risky requests have one of their own) nobody overtakes who goes next, so whatever could ever be served is served
    once enough has ended. With a `service_time` deadlines are judged and waits are foretold; without, a request is only refused
    once its deadline is past.
    """

    def __init__(self, settings: PolicySettings, service_time: ServiceTime | None = None) -> None:
        self._settings = settings
        self._service_time = service_time
        self._room = Room(settings)
        self._deadlines = Deadlines(
            service_time,
            self._room.lengths,
            quantile=settings.deadline_quantile,
            confidence=settings.confidence,
        )
        self._queues = tuple(
            FairQueue(settings.weights, ageing_ps=settings.ageing_ps, token_wait_ps=settings.token_wait_ps)
            for _ in range(2)
        )
        self._waiting: dict[int, tuple[Candidate, FairQueue]] = {}
        self._latest_starts: dict[int, tuple[int, Rule]] = {}
        self._coming = Coming()
        self._reading: set[int] = set()
        self._read_until_ps = 0
        self._triage = Triage()
        self._rate = Rate(settings.limit_blocks)
        self._works: dict[int, int] = {}
        self._puts_behind = settings.puts_behind and service_time is not None

    def adopt(self, settings: PolicySettings) -> None:
        """Goes by others of the `settings.ADOPTED` from now on; what was let in or waits is not touched. Raises InputError naming what else
        differs, and then nothing has changed."""
        before = self._settings
        kept = [
            name
            for name in PolicySettings.__struct_fields__
            if name not in ADOPTED and getattr(settings, name) != getattr(before, name)
        ]
        if kept:
            raise InputError(f"{', '.join(kept)} cannot change while requests are served")
        self._settings = settings
        self._room.adopt(settings)
        self._deadlines.adopt(quantile=settings.deadline_quantile, confidence=settings.confidence)
        for queue in self._queues:
            queue.adopt(settings.weights, settings.ageing_ps)

    def take_charged(self) -> dict[tuple[int, int], int]:
        """Tokens by line and tenant that were let in since it was last asked."""
        return {
            (line, tenant): tokens
            for line, queue in enumerate(self._queues)
            for tenant, tokens in queue.take_charged().items()
        }

    def served_elsewhere(self, line: int, tenant: int, tokens: int) -> None:
        """Another policy, which shares out the same instance, let a tenant in with so many."""
        if line < len(self._queues):
            self._queues[line].served_elsewhere(tenant, tokens)

    @property
    def admitted_count(self) -> int:
        """Requests that were let in and have not ended."""
        return len(self._room)

    @property
    def queued_count(self) -> int:
        return len(self._waiting)

    @property
    def queued_tokens(self) -> int:
        """Prompts and reserved outputs of those that wait."""
        plain, risky = self._queues
        return plain.tokens + risky.tokens

    @property
    def held_blocks(self) -> int:
        """Blocks that what was let in holds now, by the books."""
        return self._room.held_blocks

    @property
    def unsure_blocks(self) -> int:
        """Of `held_blocks`, those of requests that have shown no token yet: the engine may not have given them out."""
        return self._room.unsure_blocks

    @property
    def most_blocks(self) -> int:
        """The most that it may come to hold, by the books."""
        return self._room.most_blocks

    @property
    def keeps_most(self) -> bool:
        """Whether what requests may come to hold is reserved for them, and not just what they hold."""
        return self._settings.reservation is not Reservation.OPTIMISTIC

    @property
    def promised_blocks(self) -> int:
        """Blocks for tokens of admitted prompts that are still to be computed."""
        return self._room.promised_blocks

    @property
    def load(self) -> Load:
        """What the engine has to do, by the books."""
        return self._room.load

    @property
    def is_careful(self) -> bool:
        """Whether all that is admitted from now on is reserved its bound (`Reservation.NO_EVICT`), whatever the settings say: for as long as what
        the instance holds is not known."""
        return self._room.is_careful

    @is_careful.setter
    def is_careful(self, is_careful: bool) -> None:
        self._room.is_careful = is_careful

    @property
    def places(self) -> int:
        """Sequences that may be let in and not ended: `max_running`, or fewer where others use the instance as well."""
        return self._room.places

    @places.setter
    def places(self, places: int) -> None:
        self._room.places = min(places, self._settings.max_running)

    def next_need(self, view: AdmissionView, now_ps: int) -> tuple[int, int]:
        """Blocks and places with which the request whose turn it is goes in once all else has ended; (0, 0) where none waits."""
        candidate = next((head for queue in self._queues if (head := queue.head(now_ps)) is not None), None)
        if candidate is None:
            return 0, 0
        return self._room.least_blocks(self._room.case(candidate, view)), candidate.branches

    def would(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        """What a request would be told, were it first in its line: it is neither let in nor kept."""
        case = self._room.case(candidate, view)
        return self._refused(case, now_ps) or self._fits(case, now_ps)

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        case = self._room.case(candidate, view)
        refused = self._refused(case, now_ps)
        if refused is not None:
            return refused
        queue = self._queues[case.is_risky]
        tokens = (candidate.prompt_tokens + case.forecast.tokens) * candidate.branches
        if not queue:
            decision = self._fits(case, now_ps)
            if decision.answer is Admission.ACCEPT:
                self._admit(case, now_ps)
                queue.pass_by(candidate, tokens)
                return decision
        else:
            decision = self._decision(case, Admission.QUEUE, Rule.TURN, now_ps)
        full = self._full_queue(case, tokens, now_ps)
        if full is not None:
            return full
        queue.add(candidate, tokens)
        self._waiting[candidate.identity] = candidate, queue
        latest = self._deadlines.latest_start(candidate, self._own_tokens(case))
        self._coming.add(candidate)
        if latest is not None:
            self._latest_starts[candidate.identity] = latest
            if self._puts_behind:
                self._await(case, queue, latest[0], now_ps)
        return replace(decision, queued_requests=self.queued_count, queued_tokens=self.queued_tokens)

    def at_scheduling(self, view: AdmissionView, now_ps: int) -> Sequence[Decision]:
        if not self._waiting:
            return ()
        decisions = self._given_up(view, now_ps)
        self._put_behind(now_ps)
        for queue in self._queues:
            while (candidate := queue.head(now_ps)) is not None:
                case = self._room.case(candidate, view)
                decision = self._refused(case, now_ps) or self._fits(case, now_ps)
                if decision.answer is Admission.QUEUE:
                    break
                if decision.answer is Admission.ACCEPT:
                    queue.take(candidate)
                    self._admit(case, now_ps)
                    self._rate.let_in(self._works.get(candidate.identity, 0))
                else:
                    queue.remove(candidate)
                    self._coming.remove(candidate.identity)
                self._forget(candidate.identity)
                decisions.append(decision)
        self._rate.at(now_ps, is_waited=bool(self._works))
        return decisions

    def at_progress(self, identity: int, generated_tokens: int, now_ps: int) -> None:
        del now_ps
        if generated_tokens:
            self._arrived(identity)
        self._room.progress(identity, generated_tokens)

    def at_end(self, identity: int, generated_tokens: int, *, is_finished: bool, now_ps: int) -> None:
        self._arrived(identity)
        if identity in self._waiting:
            candidate, queue = self._waiting[identity]
            queue.remove(candidate)
            self._forget(identity)
            self._rate.at(now_ps, is_waited=bool(self._works))
        elif identity in self._room:
            self._room.end(identity, generated_tokens, is_finished=is_finished)

    def _refused(self, case: Case, now_ps: int) -> Decision | None:
        """Whether it can never be served, or would miss a deadline even if it were let in now."""
        candidate, settings = case.candidate, self._settings
        blocks = self._room.blocks_if_alone(case)
        is_long = candidate.prompt_tokens + 1 > settings.max_model_len
        is_wide = candidate.branches > settings.max_running
        if is_long or is_wide or blocks > settings.limit_blocks:
            return replace(
                self._decision(case, Admission.REJECT, Rule.NEVER_FITS, now_ps),
                need_blocks=blocks,
                limit_blocks=settings.limit_blocks,
                prompt_tokens=candidate.prompt_tokens,
                limit_tokens=settings.max_model_len if is_long else None,
                sequences=candidate.branches,
                limit_sequences=settings.max_running if is_wide and not is_long else None,
            )
        if candidate.first_token_deadline_ps is None and candidate.deadline_ps is None:
            return None
        possible = self._possible(case, now_ps)
        rule = self._deadlines.missed(candidate, possible)
        return None if rule is None else self._late(case, rule, possible, now_ps)

    def _possible(self, case: Case, now_ps: int) -> Possible:
        load = self._room.load
        if self._service_time is None:
            return self._deadlines.possible(case.candidate, case.uncached_tokens, load, now_ps)
        # What is being read has come some way by now; without anything that was foretold, all of it counts.
        begin_ps = max(now_ps, self._read_until_ps) if self._reading else now_ps
        idle = replace(load, prefill_tokens=0 if self._reading else load.prefill_tokens)
        return self._deadlines.possible(case.candidate, self._own_tokens(case), idle, begin_ps)

    def _own_tokens(self, case: Case) -> int:
        """Tokens of its prompt that are still to be computed when those on their way before it have been."""
        shared_tokens = self._coming.shared_blocks(case.candidate) * self._room.need.block_tokens
        return min(case.uncached_tokens, max(1, case.candidate.prompt_tokens - shared_tokens))

    def _admit(self, case: Case, now_ps: int) -> None:
        """It is let in: prompts are read one after the other, each as long as was foretold."""
        if self._service_time is not None:
            self._read_until_ps = self._possible(case, now_ps).first_token_ps
            self._reading.add(case.candidate.identity)
        self._room.admit(case)
        self._coming.add(case.candidate)

    def _arrived(self, identity: int) -> None:
        """Its prompt is computed, or it left."""
        self._coming.remove(identity)
        self._reading.discard(identity)

    def _late(self, case: Case, rule: Rule, possible: Possible, now_ps: int) -> Decision:
        return replace(
            self._decision(case, Admission.REJECT, rule, now_ps),
            possible_first_token_ps=possible.first_token_ps,
            possible_end_ps=possible.end_ps,
            possible_output_tokens=possible.output_tokens,
        )

    def _fits(self, case: Case, now_ps: int) -> Decision:
        """ACCEPT or QUEUE, by the room there is."""
        rule, peak_blocks, probability = self._room.fit(case)
        answer = Admission.ACCEPT if rule is Rule.FITS else Admission.QUEUE
        return self._decision(case, answer, rule, now_ps, peak_blocks, probability)

    def _full_queue(self, case: Case, tokens: int, now_ps: int) -> Decision | None:
        bounds = self._settings.queue
        if bounds.max_requests is not None and self.queued_count >= bounds.max_requests:
            return self._decision(case, Admission.REJECT, Rule.QUEUE_REQUESTS, now_ps)
        if bounds.max_tokens is not None and self.queued_tokens + tokens > bounds.max_tokens:
            return self._decision(case, Admission.REJECT, Rule.QUEUE_TOKENS, now_ps)
        return None

    def _given_up(self, view: AdmissionView, now_ps: int) -> list[Decision]:
        """Those that have waited too long, and those that even an idle engine would serve too late, wherever they stand."""
        decisions = []
        age_ps = self._settings.queue.max_age_ps
        for queue in self._queues:
            for candidate in queue.older_than(age_ps, now_ps) if age_ps is not None else ():
                queue.remove(candidate)
                self._forget(candidate.identity)
                self._coming.remove(candidate.identity)
                case = self._room.case(candidate, view)
                decisions.append(self._decision(case, Admission.REJECT, Rule.QUEUE_AGE, now_ps))
        late = [(name, rule) for name, (start_ps, rule) in self._latest_starts.items() if start_ps < now_ps]
        for identity, rule in late:
            candidate, queue = self._waiting[identity]
            queue.remove(candidate)
            self._forget(identity)
            self._coming.remove(identity)
            case = self._room.case(candidate, view)
            decisions.append(self._late(case, rule, self._possible(case, now_ps), now_ps))
        return decisions

    def _await(self, case: Case, queue: FairQueue, latest_start_ps: int, now_ps: int) -> None:
        """It waits and is to be in time: at most those with the most work are not."""
        candidate = case.candidate
        work = self._deadlines.work(case, self._room.need, self._room.load)
        self._works[candidate.identity] = work
        self._rate.at(now_ps, is_waited=True)
        self._triage.add(
            candidate.identity, place=queue.place(candidate), work=work, latest_start_ps=latest_start_ps
        )
        self._put_behind(now_ps)

    def _put_behind(self, now_ps: int) -> None:
        """Those go behind for which others would be late."""
        blocks = self._rate.blocks
        while (found := self._triage.take_out(now_ps, blocks)) is not None:
            identity, work = found
            candidate, queue = self._waiting[identity]
            queue.put_behind(candidate, work)

    def _forget(self, identity: int) -> None:
        """It waits no longer."""
        self._triage.remove(identity)
        self._works.pop(identity, None)
        del self._waiting[identity]
        self._latest_starts.pop(identity, None)

    def _decision(
        self,
        case: Case,
        answer: Admission,
        rule: Rule,
        now_ps: int,
        peak_blocks: int = 0,
        probability: float | None = None,
    ) -> Decision:
        return Decision(
            identity=case.candidate.identity,
            answer=answer,
            rule=rule,
            at_ps=now_ps,
            uncached_tokens=case.uncached_tokens,
            reserved_output_tokens=case.forecast.tokens,
            observations=case.forecast.observations,
            need_blocks=case.need_blocks,
            free_blocks=case.free_blocks,
            peak_blocks=peak_blocks,
            limit_blocks=case.limit_blocks,
            exceeded_probability=probability,
            queued_requests=len(self._waiting),
            queued_tokens=self.queued_tokens,
            retry_at_ps=self._retry_at_ps(case, rule, now_ps) if answer is not Admission.ACCEPT else None,
        )

    def _retry_at_ps(self, case: Case, rule: Rule, now_ps: int) -> int | None:
        """When enough will have ended for it and those before it, by what is reserved and the time of a step; never for what time does not mend."""
        if self._service_time is None or rule in (Rule.NEVER_FITS, Rule.FIRST_TOKEN_DEADLINE, Rule.DEADLINE):
            return None
        waiting_blocks = self.queued_tokens // self._room.need.block_tokens
        blocks = min(case.need_blocks + waiting_blocks, case.limit_blocks)
        steps = self._room.steps_until_room(blocks, case.limit_blocks)
        return (
            None if steps is None else now_ps + max(1, steps) * self._service_time.token_ps(self._room.load)
        )
