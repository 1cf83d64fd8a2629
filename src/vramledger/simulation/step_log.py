"""What a simulated run had computed by any instant: the work of its steps, in the terms of a step model's constants."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec.structs import replace

from vramledger.simulation.outcome import RequestOutcome
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request

NAMES = ("overhead_ps", "floor_ps", "token_ps", "decode_seq_ps", "kv_token_ps", "pair_ps_per_1024")
"""The constants of a step model, in the order of `features`."""


class StepWork(NamedTuple):
    """A step's work, as `StepModel.step_ps` takes it."""

    tokens: int
    decode_seqs: int
    kv_tokens: int
    pairs: int


class _Noting(StepModel, frozen=True, kw_only=True):
    """A step model that notes what it is asked: the steps of a run in their order."""

    noted: list[StepWork]

    def step_ps(self, *, tokens: int, decode_seqs: int, kv_tokens: int, pairs: int) -> int:
        self.noted.append(StepWork(tokens, decode_seqs, kv_tokens, pairs))
        return super().step_ps(tokens=tokens, decode_seqs=decode_seqs, kv_tokens=kv_tokens, pairs=pairs)


class RunLog:
    """Sums of the features of a run's steps, by the instants at which the steps end."""

    def __init__(self, ends_ps: list[int], durations_ps: list[int], rows: list[list[float]]) -> None:
        self._ends_ps = ends_ps
        self._durations_ps = durations_ps
        columns = zip(*rows, strict=True) if rows else ([] for _ in NAMES)
        self._sums = [list(accumulate(column, initial=0.0)) for column in columns]

    def between(self, start_ps: int, end_ps: int) -> list[float]:
        """Of the steps that ended after `start_ps` and by `end_ps`; negative where the second comes first."""
        first, last = bisect_right(self._ends_ps, start_ps), bisect_right(self._ends_ps, end_ps)
        return [sums[last] - sums[first] for sums in self._sums]

    def since(self, start_ps: int, end_ps: int) -> list[float]:
        """The same, of the step that was under way at `start_ps` only the share that was still to come."""
        first = bisect_right(self._ends_ps, start_ps)
        found = self.between(start_ps, end_ps)
        if first < len(self._ends_ps) and self._ends_ps[first] <= end_ps:
            duration_ps = self._durations_ps[first]
            over = max(0.0, 1 - (self._ends_ps[first] - start_ps) / duration_ps)
            found = [
                value - over * (sums[first + 1] - sums[first])
                for value, sums in zip(found, self._sums, strict=True)
            ]
        return found


def logged_run(
    requests: Sequence[Request], settings: SimulationSettings, block_tokens: int | None
) -> tuple[dict[int, RequestOutcome], RunLog]:
    """Outcomes by number, and the log of the run, step by step as the readable simulator makes it."""
    step = settings.step
    known = {name: getattr(step, name) for name in NAMES}
    noting = _Noting(**known, evidence=step.evidence, noted=[])
    outcomes: dict[int, RequestOutcome] = {}

    def ended(outcome: RequestOutcome) -> None:
        outcomes[outcome.number] = outcome

    Driver(replace(settings, step=noting), block_tokens=block_tokens, samples=2, ended=ended).run(requests)
    durations = [step.step_ps(**work._asdict()) for work in noting.noted]
    ends = list(_ends(durations, busy_spans((one.sent_ps, one.end_ps) for one in outcomes.values())))
    return outcomes, RunLog(ends, durations, [features(work, step) for work in noting.noted])


def busy_spans(served: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Stretches of time in which somebody was served or waited, of when each came and left: an engine without a lull steps through
    them."""
    spans = sorted((start, end) for start, end in served if end > start)
    if not spans:
        return
    start, end = spans[0]
    for sent_ps, end_ps in spans[1:]:
        if sent_ps > end:
            yield start, end
            start, end = sent_ps, end_ps
        else:
            end = max(end, end_ps)
    yield start, end


def _ends(durations_ps: Iterable[int], busy: Iterable[tuple[int, int]]) -> Iterator[int]:
    stretches = iter(busy)
    now, until = next(stretches, (0, 0))
    for duration_ps in durations_ps:
        if now >= until:
            now, until = next(stretches, (now, now))
        now += duration_ps
        yield now


def features(work: StepWork, model: StepModel) -> list[float]:
    """What multiplies each constant of `NAMES` in this step, as long as the same one of floor and tokens is the larger."""
    waits = model.floor_ps >= work.tokens * model.token_ps
    return [
        1.0,
        1.0 if waits else 0.0,
        0.0 if waits else float(work.tokens),
        float(work.decode_seqs),
        float(work.kv_tokens),
        work.pairs / 1024,
    ]
