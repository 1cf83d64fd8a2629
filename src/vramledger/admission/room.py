"""The room that an instance has: what is admitted, what was learned of it, and whether one more fits."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from vramledger.admission.books import Books
from vramledger.admission.candidate import Candidate
from vramledger.admission.case import Case
from vramledger.admission.decision import Rule
from vramledger.admission.forecast import Forecast, LengthBook
from vramledger.admission.foreign import ForeignBlocks
from vramledger.admission.holding import Holding
from vramledger.admission.need import Need
from vramledger.admission.protocol import AdmissionView
from vramledger.admission.risk import Prospect, RiskBook
from vramledger.admission.service_time import Load
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.admission.survival import bin_of, last_of, least_observations
from vramledger.units import ceil_div


class Fit(NamedTuple):
    """The rule that decides (`Rule.FITS`: it may go in), and the figures it used."""

    rule: Rule
    peak_blocks: int
    exceeded_probability: float | None = None


class Room:
    """Admitted requests in all books that a reservation needs. Blocks that the instance says are held and the books know nothing
    of (`foreign`) are taken to stay held.
    """

    def __init__(self, settings: PolicySettings) -> None:
        pace = settings.pace
        need = Need(
            settings.layout,
            step_tokens=pace.step_tokens or settings.max_model_len,
            steps=1 + pace.lag_steps,
        )
        self.need = need
        self.lengths = LengthBook(window=settings.window)
        self._settings = settings
        self._reservation = settings.reservation
        self._limit_blocks = settings.limit_blocks
        self._books = Books(need, pace, safety_tokens=settings.safety_tokens)
        self._risky_books = Books(need, pace, safety_tokens=settings.safety_tokens)
        self._risk = RiskBook(need, span_steps=settings.risk_span_steps)
        self._risk_until: dict[int, int] = {}
        self._foreign = ForeignBlocks()
        self._sequences = 0
        self._kv_tokens = 0
        self.places = settings.max_running
        """Sequences that may be there at once: all that the engine runs, or a share of them."""

    def __len__(self) -> int:
        return len(self._books)

    def __contains__(self, identity: int) -> bool:
        return identity in self._books

    def adopt(self, settings: PolicySettings) -> None:
        """Goes by others of the `settings.ADOPTED` from now on."""
        self._settings = settings

    @property
    def is_careful(self) -> bool:
        """Whether bounds are reserved, whatever the settings say."""
        return self._reservation is not self._settings.reservation

    @is_careful.setter
    def is_careful(self, is_careful: bool) -> None:
        self._reservation = Reservation.NO_EVICT if is_careful else self._settings.reservation

    @property
    def promised_blocks(self) -> int:
        """Blocks for tokens of admitted prompts that are still to be computed."""
        return ceil_div(self._books.prefill_tokens, self.need.block_tokens)

    @property
    def unsure_blocks(self) -> int:
        """Of `held_blocks`, those that the engine may not have given out yet."""
        return self._books.unsure_blocks

    @property
    def held_blocks(self) -> int:
        """Blocks in use now."""
        return self._books.blocks_now()

    @property
    def most_blocks(self) -> int:
        """The most in use at once from now on."""
        return self._books.peak_blocks()

    @property
    def load(self) -> Load:
        """What the engine has to do, by the books."""
        return Load(
            decode_seqs=self._sequences, kv_tokens=self._kv_tokens, prefill_tokens=self._books.prefill_tokens
        )

    def case(self, candidate: Candidate, view: AdmissionView) -> Case:
        """A candidate measured against the books and the instance."""
        settings, books, need = self._settings, self._books, self.need
        prompt_tokens = candidate.prompt_tokens
        most_tokens = settings.max_model_len - prompt_tokens
        if candidate.max_output_tokens > most_tokens > 0:  # Whatever a client asks for, a model ends there.
            candidate = replace(candidate, max_output_tokens=most_tokens)
        forecast = self._forecast(candidate, 0)
        cached_tokens = view.cached_tokens(candidate)
        uncached_tokens = prompt_tokens - cached_tokens if cached_tokens < prompt_tokens else 1
        keys = books.credited_keys(candidate)[: cached_tokens // need.block_tokens] if cached_tokens else ()
        holding = books.holding(candidate, forecast.tokens, uncached_tokens, keys)
        _, growth_end, _, branches, common_blocks, _ = holding
        first_tokens = prompt_tokens + settings.safety_tokens + (forecast.tokens > 1)
        free_blocks, used_blocks, known_blocks = view.free_blocks, view.used_blocks, books.blocks_now()
        unsure_blocks = 0 if view.is_reconciled else books.unsure_blocks
        foreign_blocks = self._foreign.told(used_blocks, known_blocks, unsure_blocks)
        usable_blocks = free_blocks + used_blocks - settings.safety_blocks
        limit_blocks = min(self._limit_blocks, usable_blocks) - foreign_blocks
        if self._reservation is Reservation.OPTIMISTIC:
            # What was evicted is in the books and not in the pool.
            free_blocks -= settings.safety_blocks + ceil_div(books.prefill_tokens, need.block_tokens)
        else:
            free_blocks = limit_blocks - known_blocks
        over = settings.risky_over_tokens
        return Case(
            candidate,
            forecast,
            uncached_tokens,
            keys,
            holding,
            holding.blocks_at(growth_end, need) - len(keys),
            need.blocks(first_tokens, branches, common_blocks) - len(keys),
            max(0, free_blocks),
            limit_blocks,
            over is not None and candidate.max_output_tokens - forecast.tokens > over,
        )

    def blocks_if_alone(self, case: Case) -> int:
        """Blocks that it must have of an empty pool: all it may grow to where that is promised, else those of its prompt."""
        is_promised = self._reservation is Reservation.NO_EVICT
        return (case.need_blocks if is_promised else case.prompt_blocks) + len(case.keys)

    def least_blocks(self, case: Case) -> int:
        """Blocks with which it is let in once all else has ended."""
        is_optimistic = self._reservation is Reservation.OPTIMISTIC
        return self.blocks_if_alone(case) + (self._settings.watermark_blocks if is_optimistic else 0)

    def fit(self, case: Case) -> Fit:
        """Whether it may go in beside what is there.

        Alone with the pool a request may try whatever it may grow to, unless all of that was promised: nothing would make more room.
        """
        settings, candidate = self._settings, case.candidate
        reservation, is_alone = self._reservation, not self._books
        peak_blocks = self._books.peak_blocks(case.holding)
        if self._sequences + candidate.branches > self.places:
            return Fit(Rule.MAX_RUNNING, peak_blocks)
        if case.prompt_blocks > case.free_blocks:
            return Fit(Rule.FREE_BLOCKS, peak_blocks)
        if reservation is Reservation.OPTIMISTIC:
            is_low = case.prompt_blocks + settings.watermark_blocks > case.free_blocks
            return Fit(Rule.WATERMARK if is_low and not is_alone else Rule.FITS, peak_blocks)
        if reservation is Reservation.RISK:
            prospect = self._prospect(candidate, 0, case.uncached_tokens)
            probability = self._risk.exceeded_probability(prospect, case.limit_blocks)
            is_likely = probability > settings.epsilon and not is_alone
            return Fit(Rule.RISK if is_likely else Rule.FITS, peak_blocks, probability)
        is_promised = reservation is Reservation.NO_EVICT
        most_blocks = case.limit_blocks if is_promised else case.limit_blocks - settings.watermark_blocks
        if peak_blocks > most_blocks and (is_promised or not is_alone):
            return Fit(Rule.FUTURE_PEAK, peak_blocks)
        if case.is_risky and self._risky_books:
            risky_blocks = self._risky_books.peak_blocks(self._risky_holding(case))
            if risky_blocks > int(self._limit_blocks * settings.risky_share):
                return Fit(Rule.RISKY_POOL, risky_blocks)
        return Fit(Rule.FITS, peak_blocks)

    def admit(self, case: Case) -> None:
        """It is let in."""
        candidate = case.candidate
        self._books.admit(candidate, case.forecast.tokens, case.uncached_tokens, case.holding)
        if case.is_risky:
            holding = self._risky_holding(case)
            self._risky_books.admit(candidate, case.forecast.tokens, case.uncached_tokens, holding)
        self._sequences += candidate.branches
        self._kv_tokens += candidate.prompt_tokens * candidate.branches
        self.lengths.start(candidate)
        if self._settings.reservation is Reservation.RISK:
            self._put_risk(candidate, 0)

    def progress(self, identity: int, generated_tokens: int) -> None:
        """An admitted request has so many output tokens. What outlives its reservation is given another."""
        books = self._books
        before = books.generated_tokens(identity)
        if generated_tokens == before:
            return
        candidate = books.candidate(identity)
        self._kv_tokens += (generated_tokens - before) * candidate.branches
        self.lengths.progress(identity, generated_tokens)
        reserved = None
        if generated_tokens >= books.reserved_tokens(identity) < candidate.max_output_tokens:
            reserved = self._forecast(candidate, generated_tokens).tokens
        books.progress(identity, generated_tokens, reserved)
        if identity in self._risky_books:
            self._risky_books.progress(identity, generated_tokens, reserved)
        is_risk = self._settings.reservation is Reservation.RISK
        if is_risk and generated_tokens > self._risk_until[identity]:
            self._put_risk(candidate, generated_tokens)

    def end(self, identity: int, generated_tokens: int, *, is_finished: bool) -> None:
        """An admitted request ended, or left otherwise."""
        self.progress(identity, generated_tokens)
        candidate = self._books.end(identity)
        self._sequences -= candidate.branches
        self._kv_tokens -= (candidate.prompt_tokens + generated_tokens) * candidate.branches
        if identity in self._risky_books:
            self._risky_books.end(identity)
        self.lengths.end(identity, generated_tokens, is_finished=is_finished)
        self._risk.drop(identity)
        self._risk_until.pop(identity, None)

    def steps_until_room(self, blocks: int, limit_blocks: int) -> int | None:
        """Steps until enough has ended, by what is reserved; None where that cannot be told, or where there is room."""
        return self._books.steps_until_room(blocks, limit_blocks)

    def _forecast(self, candidate: Candidate, generated_tokens: int) -> Forecast:
        settings, bound = self._settings, candidate.max_output_tokens
        if self._reservation in (Reservation.NO_EVICT, Reservation.OPTIMISTIC):
            return Forecast(bound, 0)
        forecast = self.lengths.at(
            candidate, settings.quantile, settings.confidence, generated_tokens=generated_tokens
        )
        if not forecast.observations and settings.first_guess_tokens is not None:
            forecast = Forecast(min(bound, max(settings.first_guess_tokens, 2 * generated_tokens)), 0)
        # A bound that the whole pool could not hold is reserved as far as the pool goes.
        room = self._limit_blocks // candidate.branches * self.need.block_tokens
        room -= candidate.prompt_tokens + settings.safety_tokens
        return Forecast(max(generated_tokens + 1, min(forecast.tokens, room)), forecast.observations)

    def _risky_holding(self, case: Case) -> Holding:
        """What it would hold by the books of the risky, whose steps are their own."""
        return self._risky_books.holding(case.candidate, case.forecast.tokens, case.uncached_tokens, ())

    def _put_risk(self, candidate: Candidate, generated_tokens: int) -> None:
        # Up to the end of its bin of lengths, or of eight tokens, it counts as though it had come there.
        until_tokens = max(generated_tokens | 7, last_of(bin_of(generated_tokens))) if generated_tokens else 0
        prospect = self._prospect(candidate, generated_tokens, 0, until_tokens)
        self._risk.put(candidate.identity, prospect, self._books.step)
        self._risk_until[candidate.identity] = until_tokens

    def _prospect(
        self, candidate: Candidate, generated_tokens: int, uncached_tokens: int, until_tokens: int = 0
    ) -> Prospect:
        settings = self._settings
        least = least_observations(settings.quantile, settings.confidence)
        prefill_tokens = 0 if generated_tokens else self._books.prefill_tokens + uncached_tokens
        book = self.lengths.speaker(candidate, least, generated_tokens=generated_tokens)
        return self._risk.prospect(
            candidate,
            None if book is None else book.curve(),
            generated_tokens=generated_tokens,
            until_tokens=until_tokens,
            step=self._books.step,
            wait_steps=settings.pace.wait_steps(prefill_tokens) or 0,
        )
