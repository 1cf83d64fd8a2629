"""Output lengths of requests, learned by class while they are served."""

from __future__ import annotations

from typing import NamedTuple

from vramledger.admission.candidate import Candidate
from vramledger.admission.survival import Survival


class Forecast(NamedTuple):
    """Output tokens to be reserved for each branch, and how many ends this rests on (0: on the client's bound alone)."""

    tokens: int
    observations: int


class LengthBook:
    """Lengths by tenant, cohort and prompt length, by cohort, and of all requests: the first of these with enough observations speaks.

    Prompt lengths are classed by powers of four. A request that is cut at its own bound did not end there of itself, so it is censored. A forecast
    never exceeds the client's bound and is always more than what was generated.
    """

    def __init__(self, *, window: int = 4096) -> None:
        self._window = window
        self._books: dict[tuple[object, ...], Survival] = {}
        self._open: dict[int, tuple[Candidate, int]] = {}

    def start(self, candidate: Candidate) -> None:
        """It is admitted."""
        self._open[candidate.identity] = candidate, 0
        for book in self._books_of(candidate):
            book.reach(0)

    def progress(self, identity: int, generated_tokens: int) -> None:
        """It has come so far."""
        candidate, before = self._open[identity]
        if generated_tokens > before:
            self._open[identity] = candidate, generated_tokens
            for book in self._books_of(candidate):
                book.reach(generated_tokens, before)

    def end(self, identity: int, generated_tokens: int, *, is_finished: bool) -> None:
        """It ended by itself (`is_finished` and below its bound), or was only not seen any longer."""
        self.progress(identity, generated_tokens)
        candidate, _ = self._open.pop(identity)
        if is_finished and generated_tokens < candidate.max_output_tokens:
            for book in self._books_of(candidate):
                book.end(generated_tokens)

    def at(
        self, candidate: Candidate, quantile: float, confidence: float, *, generated_tokens: int = 0
    ) -> Forecast:
        """The output that a share `quantile` does not exceed, of requests like it that have generated so much."""
        bound = candidate.max_output_tokens
        for book in self._books_of(candidate):
            tokens = book.safe_at(quantile, confidence, given=generated_tokens)
            if tokens is not None:
                return Forecast(
                    min(bound, max(tokens, generated_tokens + 1)), book.observations(generated_tokens)
                )
        return Forecast(bound, 0)

    def speaker(
        self, candidate: Candidate, least_observations: int, *, generated_tokens: int = 0
    ) -> Survival | None:
        """The book of the narrowest class with so many observations."""
        for book in self._books_of(candidate):
            if book.observations(generated_tokens) >= least_observations:
                return book
        return None

    def _books_of(self, candidate: Candidate) -> list[Survival]:
        books = self._books
        found: list[Survival] = []
        length_class = candidate.prompt_tokens.bit_length() // 2
        for name in (
            (candidate.tenant, candidate.cohort, length_class),
            (candidate.cohort, length_class),
            (candidate.cohort,),
            (),
        ):
            book = books.get(name)
            if book is None:
                book = books[name] = Survival(self._window)
            found.append(book)
        return found
