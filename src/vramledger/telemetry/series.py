"""Sampling: sources asked at even times, with what the instance is at.

The schedule is pure: clock and sleep are given to it. A source that cannot answer (a server that is not up yet, a process that
ended) is passed over until it can; what it said last is kept as a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import SourceError
from vramledger.ledger import Phase
from vramledger.observation import Sample
from vramledger.telemetry.marks import BEFORE_LOAD, END, Mark, ReadMarks

SHORTEST_INTERVAL_S = 0.01


class Source(Protocol):
    """Something that can be asked again and again."""

    name: str

    def read(self, at_s: float) -> Sequence[Sample]:
        """What it says now, as samples of the time `at_s`. Raises SourceError where it cannot tell."""
        ...


class Tick(Struct, frozen=True, kw_only=True):
    """One round of questions: its samples, marks first, and what the instance is at."""

    at_s: float
    samples: tuple[Sample, ...]
    label: str


class Rounds:
    """Sources asked together. What a source that cannot answer said last is kept until it answers."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._silent: dict[str, str] = {}
        self._answered: set[str] = set()

    def __call__(self, at_s: float, phase: Phase | None) -> list[Sample]:
        """What all say now; of `phase` where a source does not say itself."""
        samples: list[Sample] = []
        for source in self._sources:
            try:
                read = source.read(at_s)
            except SourceError as problem:
                self._silent[source.name] = problem.message
                continue
            self._silent.pop(source.name, None)
            self._answered.add(source.name)
            samples += [
                sample if sample.phase is not None else replace(sample, phase=phase) for sample in read
            ]
        return samples

    @property
    def answered(self) -> bool:
        """Whether any source ever did."""
        return bool(self._answered)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sources that never answered, and those that did and then no more."""
        return tuple(
            f"{name} {'no longer answers' if name in self._answered else 'never answered'}: {reason}"
            for name, reason in self._silent.items()
        )


class Sampler:
    """Rounds of questions to `sources`, `interval_s` apart, as long as `goes_on(at_s)` says.

    `marks` are asked before each round; until one comes the instance is at `label`. A round that takes longer than the interval delays the next one, and no round
    is made up for. `notes` say what could not be asked.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        interval_s: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        goes_on: Callable[[float], bool],
        marks: Sequence[ReadMarks] = (),
        label: str = BEFORE_LOAD,
    ) -> None:
        if interval_s < SHORTEST_INTERVAL_S:
            raise ValueError(f"an interval of {interval_s} s is shorter than {SHORTEST_INTERVAL_S} s")
        self._rounds = Rounds(sources)
        self.interval_s = interval_s
        """Of the rounds from the next one on; may be changed."""
        self._clock = clock
        self._sleep = sleep
        self._goes_on = goes_on
        self._marks = tuple(marks)
        self._label = label
        self.started_s = clock()

    def __iter__(self) -> Iterator[Tick]:
        at: Mark = Mark(at_s=self.started_s, label=self._label)
        due_s = self.started_s
        first = True
        while True:
            now_s = self._clock()
            if now_s < due_s:
                self._sleep(due_s - now_s)
                now_s = self._clock()
            found = [mark for read in self._marks for mark in read()]
            fresh = sorted(found, key=lambda mark: mark.at_s)
            samples = [at.sample("series")] if first else []
            for mark in fresh:
                if mark.label != at.label:
                    samples.append(mark.sample("series"))
                    at = mark
            first = False
            samples += self._rounds(now_s, at.phase)
            yield Tick(at_s=now_s, samples=tuple(samples), label=at.label)
            if not self._goes_on(now_s):
                return
            # A round that is late by less than an interval keeps step; after a longer one the count begins anew.
            late = now_s - due_s > self.interval_s
            due_s = (now_s if late else due_s) + self.interval_s

    def end(self) -> Sample:
        """The row that says that the series was ended and not cut."""
        return Mark(at_s=self._clock(), label=END).sample("series")

    @property
    def answered(self) -> bool:
        """Whether any source ever did."""
        return self._rounds.answered

    @property
    def notes(self) -> tuple[str, ...]:
        """Sources that never answered, and those that did and then no more."""
        return self._rounds.notes
