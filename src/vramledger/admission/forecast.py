"""Output lengths of requests, learned by class while they are served."""

from __future__ import annotations

from typing import NamedTuple

from vramledger.admission.candidate import Candidate
from vramledger.admission.survival import Survival, bin_of


class Forecast(NamedTuple):
    """Output tokens to be reserved for each branch, and how many ends this rests on (0: on the client's bound alone)."""

    tokens: int
    observations: int


_FOR_A_MEAN = 8
"""Ends that an average is taken of: for an order and a rate, which are not promises, few are enough."""


class Mean:
    """Finished outputs of a class; beyond twice as many as a window everything counts half."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0.0
        self.total = 0.0

    def add(self, tokens: int, window: int) -> None:
        self.count += 1
        self.total += tokens
        if self.count > 2 * window:
            self.count /= 2
            self.total /= 2


class _Open:
    __slots__ = ("books", "candidate", "reached_bins")

    def __init__(self, candidate: Candidate, books: list[Survival]) -> None:
        self.candidate = candidate
        self.books = books
        self.reached_bins = 1


class LengthBook:
    """Lengths by tenant, cohort and prompt length, by cohort, and of all requests: the first of these with enough observations speaks.

    Prompt lengths are classed by powers of four. A request that is cut at its own bound did not end there of itself, so it is censored. A forecast
    never exceeds the client's bound and is always more than what was generated.
    """

    def __init__(self, *, window: int = 4096) -> None:
        self._window = window
        self._books: dict[tuple[object, ...], Survival] = {}
        self._open: dict[int, _Open] = {}
        self._means: dict[tuple[object, ...], Mean] = {}

    def start(self, candidate: Candidate) -> None:
        """It is admitted."""
        books = self._books_of(candidate)
        self._open[candidate.identity] = _Open(candidate, books)
        for book in books:
            book.reach_bins(0, 1)

    def progress(self, identity: int, generated_tokens: int) -> None:
        """It has come so far."""
        row, stop = self._open[identity], bin_of(generated_tokens) + 1
        if stop > row.reached_bins:
            for book in row.books:
                book.reach_bins(row.reached_bins, stop)
            row.reached_bins = stop

    def end(self, identity: int, generated_tokens: int, *, is_finished: bool) -> None:
        """It ended by itself (`is_finished` and below its bound), or was only not seen any longer."""
        self.progress(identity, generated_tokens)
        row = self._open.pop(identity)
        if not is_finished:
            return
        for name in _classes(row.candidate):
            self._means.setdefault(name, Mean()).add(generated_tokens, self._window)
        if generated_tokens < row.candidate.max_output_tokens:
            for book in row.books:
                book.end(generated_tokens)

    def mean(self, candidate: Candidate) -> int | None:
        """The output of requests like it on average, whether they ended by themselves or at their bounds; None while too few have."""
        for name in _classes(candidate):
            mean = self._means.get(name)
            if mean is not None and mean.count >= _FOR_A_MEAN:
                return min(candidate.max_output_tokens, max(1, round(mean.total / mean.count)))
        return None

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
        for name in _classes(candidate):
            book = books.get(name)
            if book is None:
                book = books[name] = Survival(self._window)
            found.append(book)
        return found


def _classes(candidate: Candidate) -> tuple[tuple[object, ...], ...]:
    """The names of its classes, the narrowest first."""
    length_class = candidate.prompt_tokens.bit_length() // 2
    return (
        (candidate.tenant, candidate.cohort, length_class),
        (candidate.cohort, length_class),
        (candidate.cohort,),
        (),
    )
