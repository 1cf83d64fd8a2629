"""The admission policy: what is let in, what waits, what is refused, and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.admission.books import Books
from vramledger.admission.candidate import Candidate
from vramledger.admission.case import Case
from vramledger.admission.deadlines import Deadlines, Possible
from vramledger.admission.decision import Admission, Decision, Rule
from vramledger.admission.fair_queue import FairQueue
from vramledger.admission.forecast import Forecast, LengthBook
from vramledger.admission.need import Need
from vramledger.admission.protocol import AdmissionView
from vramledger.admission.risk import RiskBook, Terms
from vramledger.admission.service_time import Load, ServiceTime
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.admission.survival import bin_of, least_observations
from vramledger.units import ceil_div


class Policy:
    """Admits by the future peak of the pool. See `settings.PolicySettings` for what it goes by.

    Within each of two lines (risky requests have one of their own) nobody overtakes who goes next, so whatever could ever be served is served
    once enough has ended. Blocks that the instance says are held and the books know nothing of are taken to stay held.
    With a `service_time` deadlines are judged and waits are foretold; without, a request is only refused once its deadline is past.
    """

    def __init__(self, settings: PolicySettings, service_time: ServiceTime | None = None) -> None:
        self._settings = settings
        self._service_time = service_time
        pace = settings.pace
        self._need = Need(
            settings.layout,
            step_tokens=pace.step_tokens or settings.max_model_len,
            steps=1 + pace.lag_steps,
        )
        self._books = Books(self._need, pace, safety_tokens=settings.safety_tokens)
        self._risky_books = Books(self._need, pace, safety_tokens=settings.safety_tokens)
        self._lengths = LengthBook(window=settings.window)
        self._risk = RiskBook(self._need, span_steps=settings.risk_span_steps)
        self._queues = tuple(FairQueue(settings.weights, ageing_ps=settings.ageing_ps) for _ in range(2))
        self._waiting: dict[int, tuple[Candidate, FairQueue]] = {}
        self._latest_starts: dict[int, tuple[int, Rule]] = {}
        self._deadlines = Deadlines(
            service_time, self._lengths, quantile=settings.deadline_quantile, confidence=settings.confidence
        )
        self._sequences = 0
        self._kv_tokens = 0

    @property
    def admitted_count(self) -> int:
        """Requests that were let in and have not ended."""
        return len(self._books)

    @property
    def queued_count(self) -> int:
        return len(self._waiting)

    @property
    def queued_tokens(self) -> int:
        return sum(queue.tokens for queue in self._queues)

    def at_arrival(self, candidate: Candidate, view: AdmissionView, now_ps: int) -> Decision:
        case = self._case(candidate, view)
        refused = self._refused(case, now_ps)
        if refused is not None:
            return refused
        queue = self._queues[case.is_risky]
        tokens = self._charged_tokens(case)
        if not queue:
            decision = self._fits(case, now_ps)
            if decision.answer is Admission.ACCEPT:
                self._admit(case)
                queue.pass_by(candidate, tokens)
                return decision
        else:
            decision = self._decision(case, Admission.QUEUE, Rule.TURN, now_ps)
        full = self._full_queue(case, tokens, now_ps)
        if full is not None:
            return full
        queue.add(candidate, tokens)
        self._waiting[candidate.identity] = candidate, queue
        latest = self._deadlines.latest_start(candidate, case.uncached_tokens)
        if latest is not None:
            self._latest_starts[candidate.identity] = latest
        return replace(decision, queued_requests=self.queued_count, queued_tokens=self.queued_tokens)

    def at_scheduling(self, view: AdmissionView, now_ps: int) -> Sequence[Decision]:
        if not self._waiting:
            return ()
        decisions = list(self._given_up(view, now_ps))
        for queue in self._queues:
            while (candidate := queue.head(now_ps)) is not None:
                case = self._case(candidate, view)
                decision = self._refused(case, now_ps) or self._fits(case, now_ps)
                if decision.answer is Admission.QUEUE:
                    break
                del self._waiting[candidate.identity]
                self._latest_starts.pop(candidate.identity, None)
                if decision.answer is Admission.ACCEPT:
                    queue.take(candidate)
                    self._admit(case)
                else:
                    queue.remove(candidate)
                decisions.append(decision)
        return decisions

    def at_progress(self, identity: int, generated_tokens: int, now_ps: int) -> None:
        del now_ps
        books, settings = self._books, self._settings
        before = books.generated_tokens(identity)
        if generated_tokens == before:
            return
        candidate = books.candidate(identity)
        self._kv_tokens += (generated_tokens - before) * candidate.branches
        self._lengths.progress(identity, generated_tokens)
        reserved = None
        if generated_tokens >= books.reserved_tokens(identity) < candidate.max_output_tokens:
            reserved = self._forecast(candidate, generated_tokens).tokens
        books.progress(identity, generated_tokens, reserved)
        if identity in self._risky_books:
            self._risky_books.progress(identity, generated_tokens, reserved)
        if settings.reservation is Reservation.RISK and bin_of(before) != bin_of(generated_tokens):
            self._put_risk(candidate, generated_tokens)

    def at_end(self, identity: int, generated_tokens: int, *, is_finished: bool, now_ps: int) -> None:
        waiting = self._waiting.pop(identity, None)
        if waiting is not None:
            candidate, queue = waiting
            queue.remove(candidate)
            self._latest_starts.pop(identity, None)
            return
        if identity not in self._books:
            return
        self.at_progress(identity, generated_tokens, now_ps)
        candidate = self._books.end(identity)
        self._sequences -= candidate.branches
        self._kv_tokens -= (candidate.prompt_tokens + generated_tokens) * candidate.branches
        if identity in self._risky_books:
            self._risky_books.end(identity)
        self._lengths.end(identity, generated_tokens, is_finished=is_finished)
        self._risk.drop(identity)

    def _case(self, candidate: Candidate, view: AdmissionView) -> Case:
        settings, books, need = self._settings, self._books, self._need
        forecast = self._forecast(candidate, 0)
        cached_tokens = view.cached_tokens(candidate)
        uncached_tokens = max(1, candidate.prompt_tokens - cached_tokens)
        keys = books.credited_keys(candidate)[: cached_tokens // need.block_tokens]
        holding = books.holding(candidate, forecast.tokens, uncached_tokens, keys)
        branches, common = holding.branches, holding.common_blocks
        prompt_tokens = candidate.prompt_tokens + settings.safety_tokens
        # Blocks that the instance says are held and the books know nothing of stay held as far as anybody knows.
        foreign_blocks = max(0, view.used_blocks - books.blocks_now())
        usable_blocks = view.free_blocks + view.used_blocks
        limit_blocks = min(settings.limit_blocks, usable_blocks - settings.safety_blocks) - foreign_blocks
        free_blocks = limit_blocks - books.blocks_now()
        if settings.reservation is Reservation.OPTIMISTIC:
            # What was evicted is in the books and not in the pool.
            promised_blocks = ceil_div(books.prefill_tokens, need.block_tokens)
            free_blocks = view.free_blocks - settings.safety_blocks - promised_blocks
        over = settings.risky_over_tokens
        return Case(
            candidate=candidate,
            forecast=forecast,
            uncached_tokens=uncached_tokens,
            keys=keys,
            holding=holding,
            need_blocks=holding.blocks_at(holding.growth_end, need) - len(keys),
            prompt_blocks=need.blocks(prompt_tokens + min(1, forecast.tokens - 1), branches, common)
            - len(keys),
            free_blocks=max(0, free_blocks),
            limit_blocks=limit_blocks,
            is_risky=over is not None and candidate.max_output_tokens - forecast.tokens > over,
        )

    def _forecast(self, candidate: Candidate, generated_tokens: int) -> Forecast:
        settings, bound = self._settings, candidate.max_output_tokens
        if settings.reservation in (Reservation.NO_EVICT, Reservation.OPTIMISTIC):
            return Forecast(bound, 0)
        forecast = self._lengths.at(
            candidate, settings.quantile, settings.confidence, generated_tokens=generated_tokens
        )
        # A bound that the whole pool could not hold is reserved as far as the pool goes.
        room = self._settings.limit_blocks // candidate.branches * self._need.block_tokens
        room -= candidate.prompt_tokens + settings.safety_tokens
        return Forecast(max(generated_tokens + 1, min(forecast.tokens, room)), forecast.observations)

    def _refused(self, case: Case, now_ps: int) -> Decision | None:
        """Whether it can never be served, or not in time."""
        candidate, settings = case.candidate, self._settings
        blocks = case.need_blocks if settings.reservation is Reservation.NO_EVICT else case.prompt_blocks
        if (
            candidate.prompt_tokens + 1 > settings.max_model_len
            or blocks + len(case.keys) > settings.limit_blocks
            or candidate.branches > settings.max_running
        ):
            decision = self._decision(case, Admission.REJECT, Rule.NEVER_FITS, now_ps)
            return replace(decision, need_blocks=blocks + len(case.keys), limit_blocks=settings.limit_blocks)
        return self._too_late(case, now_ps)

    def _too_late(self, case: Case, now_ps: int) -> Decision | None:
        """Whether it would miss a deadline even if it were let in now."""
        candidate = case.candidate
        if candidate.first_token_deadline_ps is None and candidate.deadline_ps is None:
            return None
        possible = self._deadlines.possible(candidate, case.uncached_tokens, self._load(), now_ps)
        rule = self._deadlines.missed(candidate, possible)
        return None if rule is None else self._late(case, rule, possible, now_ps)

    def _late(self, case: Case, rule: Rule, possible: Possible, now_ps: int) -> Decision:
        return replace(
            self._decision(case, Admission.REJECT, rule, now_ps),
            possible_first_token_ps=possible.first_token_ps,
            possible_end_ps=possible.end_ps,
            possible_output_tokens=possible.output_tokens,
        )

    def _fits(self, case: Case, now_ps: int) -> Decision:
        """ACCEPT or QUEUE by the pool alone."""
        settings, candidate = self._settings, case.candidate
        peak_blocks = self._books.peak_blocks(case.holding)
        probability = None
        rule = Rule.FITS
        if self._sequences + candidate.branches > settings.max_running:
            rule = Rule.MAX_RUNNING
        elif case.prompt_blocks > case.free_blocks:
            rule = Rule.FREE_BLOCKS
        elif settings.reservation is Reservation.OPTIMISTIC:
            if self._books and case.prompt_blocks + settings.watermark_blocks > case.free_blocks:
                rule = Rule.WATERMARK
        elif settings.reservation is Reservation.RISK:
            probability = self._risk.exceeded_probability(
                self._risk_terms(candidate, 0, case.uncached_tokens), case.limit_blocks
            )
            if self._books and probability > settings.epsilon:
                rule = Rule.RISK
        elif peak_blocks > case.limit_blocks:
            # Alone with the pool it may try, whatever it may grow to: nothing would make more room.
            if self._books or settings.reservation is Reservation.NO_EVICT:
                rule = Rule.FUTURE_PEAK
        elif case.is_risky:
            risky_peak = self._risky_books.peak_blocks(case.holding)
            if self._risky_books and risky_peak > int(settings.limit_blocks * settings.risky_share):
                rule, peak_blocks = Rule.RISKY_POOL, risky_peak
        answer = Admission.ACCEPT if rule is Rule.FITS else Admission.QUEUE
        decision = self._decision(case, answer, rule, now_ps)
        return replace(decision, peak_blocks=peak_blocks, exceeded_probability=probability)

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
                case = self._forget(candidate, queue, view)
                decisions.append(self._decision(case, Admission.REJECT, Rule.QUEUE_AGE, now_ps))
        late = [name for name, (start_ps, _) in self._latest_starts.items() if start_ps < now_ps]
        for identity in late:
            rule = self._latest_starts[identity][1]
            case = self._forget(*self._waiting[identity], view)
            possible = self._deadlines.possible(case.candidate, case.uncached_tokens, self._load(), now_ps)
            decisions.append(self._late(case, rule, possible, now_ps))
        return decisions

    def _forget(self, candidate: Candidate, queue: FairQueue, view: AdmissionView) -> Case:
        queue.remove(candidate)
        del self._waiting[candidate.identity]
        self._latest_starts.pop(candidate.identity, None)
        return self._case(candidate, view)

    def _decision(self, case: Case, answer: Admission, rule: Rule, now_ps: int) -> Decision:
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
            limit_blocks=case.limit_blocks,
            queued_requests=self.queued_count,
            queued_tokens=self.queued_tokens,
            retry_at_ps=self._retry_at_ps(case, rule, now_ps) if answer is not Admission.ACCEPT else None,
        )

    def _retry_at_ps(self, case: Case, rule: Rule, now_ps: int) -> int | None:
        """When enough will have ended for it, by what is reserved and the time of a step; never for what time does not mend."""
        if self._service_time is None or rule in (Rule.NEVER_FITS, Rule.FIRST_TOKEN_DEADLINE, Rule.DEADLINE):
            return None
        waiting_blocks = sum(queue.tokens for queue in self._queues) // self._need.block_tokens
        blocks = min(case.need_blocks + waiting_blocks, case.limit_blocks)
        steps = self._books.steps_until_room(blocks, case.limit_blocks)
        if steps is None:
            return None
        return now_ps + max(1, steps) * self._service_time.token_ps(self._load())

    def _admit(self, case: Case) -> None:
        candidate = case.candidate
        self._books.admit(candidate, case.forecast.tokens, case.uncached_tokens, case.keys)
        if case.is_risky:
            self._risky_books.admit(candidate, case.forecast.tokens, case.uncached_tokens, ())
        self._sequences += candidate.branches
        self._kv_tokens += candidate.prompt_tokens * candidate.branches
        self._lengths.start(candidate)
        if self._settings.reservation is Reservation.RISK:
            self._put_risk(candidate, 0)

    def _put_risk(self, candidate: Candidate, generated_tokens: int) -> None:
        terms = self._risk_terms(candidate, generated_tokens, 0)
        self._risk.put(candidate.identity, terms, self._books.step)

    def _risk_terms(self, candidate: Candidate, generated_tokens: int, uncached_tokens: int) -> Terms:
        settings = self._settings
        least = least_observations(settings.quantile, settings.confidence)
        prefill_tokens = 0 if generated_tokens else self._books.prefill_tokens + uncached_tokens
        wait_steps = settings.pace.wait_steps(prefill_tokens)
        return self._risk.terms(
            candidate,
            self._lengths.speaker(candidate, least, generated_tokens=generated_tokens),
            generated_tokens=generated_tokens,
            step=self._books.step,
            wait_steps=wait_steps or 0,
        )

    def _charged_tokens(self, case: Case) -> int:
        candidate = case.candidate
        return (candidate.prompt_tokens + case.forecast.tokens) * candidate.branches

    def _load(self) -> Load:
        return Load(
            decode_seqs=self._sequences,
            kv_tokens=self._kv_tokens,
            prefill_tokens=self._books.prefill_tokens,
        )
