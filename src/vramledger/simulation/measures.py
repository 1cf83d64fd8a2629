"""Outcomes by the column turned into a summary, batch by batch, in bounded memory.

Up to `EXACT` values of a quantity are kept and their percentiles exact; from there on a histogram with
`STEPS` equal steps an octave is, whose percentiles are off by at most half a step. Imports numpy, so import this module late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from vramledger.simulation.outcome import Status
from vramledger.simulation.outcome_columns import Ints, OutcomeColumns
from vramledger.simulation.settings import Slo
from vramledger.simulation.summary import (
    CURVE_PERCENTS,
    PERCENTS,
    Curves,
    GroupSummary,
    Quantiles,
    Summary,
    rank_of,
)
from vramledger.workload.columns import Workload

EXACT = 2**20
STEPS = 1_024
RELATIVE_ERROR = 1 / (2 * STEPS)
MOST_GROUPS = 64
_NAMED = 8
_PS_PER_MS = 1_000_000_000
_LOW = np.int64(2**31 - 1)
Mask = npt.NDArray[np.bool_]


class Sketch:
    """Quantiles of a stream of whole numbers of at least 0."""

    def __init__(self, exact: int = EXACT) -> None:
        self._exact = exact
        self._kept: list[Ints] = []
        self._histogram: Ints | None = None
        self._count = self._total = self._max = 0

    def add(self, values: Ints) -> None:
        """More values."""
        if not len(values):
            return
        self._count += len(values)
        self._max = max(self._max, int(values.max()))
        # In two halves, whose sums cannot overflow.
        self._total += (int((values >> 31).sum()) << 31) + int((values & _LOW).sum())
        if self._histogram is None:
            self._kept.append(np.array(values))
            if self._count > self._exact:
                self._histogram = np.zeros(64 * STEPS + 1, dtype=np.int64)
                for kept in self._kept:
                    self._bin(kept)
                self._kept = []
        else:
            self._bin(values)

    def _bin(self, values: Ints) -> None:
        assert self._histogram is not None
        mantissa, exponent = np.frexp(values.astype(np.float64))
        places = ((exponent - 1) * STEPS + ((mantissa * 2 - 1) * STEPS)).astype(np.int64) + 1
        places[values == 0] = 0
        self._histogram += np.bincount(places, minlength=len(self._histogram))

    def quantiles(self) -> Quantiles:
        """What is known of the values so far."""
        if not self._count:
            return Quantiles()
        found = self.at(PERCENTS)
        return Quantiles(
            count=self._count,
            mean=self._total / self._count,
            p50=found[0],
            p90=found[1],
            p95=found[2],
            p99=found[3],
            max=self._max,
            relative_error=0.0 if self._histogram is None else RELATIVE_ERROR,
        )

    def at(self, percents: Sequence[int]) -> list[int]:
        """The percentiles of the values so far, none where there is no value."""
        if not self._count:
            return []
        ranks = [rank_of(self._count, percent) for percent in percents]
        if self._histogram is None:
            values = np.concatenate(self._kept)
            exact: list[int] = np.partition(values, ranks)[ranks].tolist()
            return exact
        places = np.searchsorted(np.cumsum(self._histogram), np.array(ranks) + 1).tolist()
        return [min(_middle(place), self._max) for place in places]


def _middle(place: int) -> int:
    """The middle of a step of the histogram."""
    if place == 0:
        return 0
    octave, step = divmod(place - 1, STEPS)
    return ((2 * STEPS + 2 * step + 1) << octave) // (2 * STEPS)


def is_good(outcomes: OutcomeColumns, slo: Slo) -> Mask:
    """Which requests met every aim of `slo`."""
    late_ttft, late_tpot, late_latency = _misses(outcomes, slo)
    served = (outcomes.status == Status.FINISHED) | (outcomes.status == Status.CANCELLED)
    good: Mask = served & ~(late_ttft | late_tpot | late_latency)
    return good


def _misses(outcomes: OutcomeColumns, slo: Slo) -> tuple[Mask, Mask, Mask]:
    """Which requests missed their first token's, later tokens' and whole time, as far as that was due when they ended.

    One that was never sent, refused or never got there misses the aim.
    """
    finished, cancelled = outcomes.status == Status.FINISHED, outcomes.status == Status.CANCELLED
    has_first = outcomes.first_token_ps >= 0
    ended = outcomes.end_ps >= 0
    # A client that left before the first token waited until then and no longer.
    first_ps = np.where(has_first, outcomes.first_token_ps, outcomes.end_ps) - outcomes.sent_ps
    got_first = has_first | (cancelled & ended)
    ttft = (
        np.zeros(len(finished), dtype=np.bool_)
        if slo.ttft_ms is None
        else ~got_first | (first_ps > _ps(slo.ttft_ms))
    )
    tpot = np.zeros(len(finished), dtype=np.bool_)
    if slo.tpot_ms is not None:
        # A client that left was waiting for one token more than it had.
        gaps = outcomes.output_tokens - finished
        over_ps = outcomes.end_ps - outcomes.first_token_ps > gaps * _ps(slo.tpot_ms)
        tpot = (has_first & (gaps > 0) & over_ps) | ~(finished | cancelled)
    latency = np.zeros(len(finished), dtype=np.bool_)
    if slo.latency_ms is not None:
        over_ps = outcomes.end_ps - outcomes.sent_ps > _ps(slo.latency_ms)
        latency = ~((finished | cancelled) & ended) | over_ps
    return ttft, tpot, latency


def _ps(milliseconds: float) -> int:
    return round(milliseconds * _PS_PER_MS)


class _Group:
    """Sums of one group so far."""

    def __init__(self, name: str, exact: int) -> None:
        self.name = name
        self.counts = dict.fromkeys(Status, 0)
        self.sums: dict[str, int] = {}
        self.first_sent_ps, self.last_sent_ps, self.last_end_ps, self.longest = -1, 0, 0, 0
        self.named: dict[Status, list[int]] = {Status.NEVER_FITS: [], Status.LIVELOCKED: []}
        self.ttft, self.tpot, self.latency, self.queue = (Sketch(exact) for _ in range(4))

    def add(self, outcomes: OutcomeColumns, slo: Slo) -> None:
        status, first, end = outcomes.status, outcomes.first_token_ps, outcomes.end_ps
        for kind in Status:
            self.counts[kind] += int((status == kind).sum())
        for kind, numbers in self.named.items():
            numbers.extend(outcomes.number[status == kind][: _NAMED - len(numbers)].tolist())
        late_ttft, late_tpot, late_latency = _misses(outcomes, slo)
        sent = outcomes.sent_ps >= 0
        for name, value in (
            ("good", is_good(outcomes, slo).sum()),
            ("missed_ttft", late_ttft.sum()),
            ("missed_tpot", late_tpot.sum()),
            ("missed_latency", late_latency.sum()),
            ("prompt_tokens", outcomes.prompt_tokens[sent].sum()),
            ("output_tokens", outcomes.output_tokens[first >= 0].sum()),
            ("hit_tokens", outcomes.hit_tokens.sum()),
            ("recomputed_tokens", outcomes.recomputed_tokens.sum()),
            ("preemptions", outcomes.preemptions.sum()),
            ("preempted", (outcomes.preemptions > 0).sum()),
        ):
            self.sums[name] = self.sums.get(name, 0) + int(value)
        if sent.any():
            times = outcomes.sent_ps[sent]
            least = int(times.min())
            self.first_sent_ps = least if self.first_sent_ps < 0 else min(self.first_sent_ps, least)
            self.last_sent_ps = max(self.last_sent_ps, int(times.max()))
            self.last_end_ps = max(self.last_end_ps, int(end.max()))
            self.longest = max(self.longest, int(outcomes.prompt_tokens.max()))
        started, admitted = first >= 0, outcomes.admitted_ps >= 0
        finished = status == Status.FINISHED
        many = finished & (outcomes.output_tokens > 1)
        self.ttft.add((first - outcomes.sent_ps)[started])
        self.queue.add((outcomes.admitted_ps - outcomes.sent_ps)[admitted])
        self.latency.add((end - outcomes.sent_ps)[finished])
        self.tpot.add((end - first)[many] // (outcomes.output_tokens[many] - 1))

    def curves(self) -> Curves:
        return Curves(
            **{
                f"{name}_ps": tuple(getattr(self, name).at(CURVE_PERCENTS))
                for name in ("ttft", "tpot", "latency", "queue")
            }
        )

    def summary(self) -> GroupSummary:
        counts = {kind.name.lower(): count for kind, count in self.counts.items()}
        return GroupSummary(
            name=self.name,
            offered=sum(counts.values()),
            **counts,
            **self.sums,
            ttft_ps=self.ttft.quantiles(),
            tpot_ps=self.tpot.quantiles(),
            latency_ps=self.latency.quantiles(),
            queue_ps=self.queue.quantiles(),
            longest_prompt_tokens=self.longest,
            first_sent_ps=max(self.first_sent_ps, 0),
            last_sent_ps=self.last_sent_ps,
            last_end_ps=self.last_end_ps,
            never_fits_numbers=tuple(self.named[Status.NEVER_FITS]),
            livelocked_numbers=tuple(self.named[Status.LIVELOCKED]),
        )


class Summariser:
    """Takes batches of outcomes in the workload's order; `summary` may be asked at any time.

    `names` are the groups' (tenants or cohorts), which `add` is given the numbers of. Past 64 groups the later ones are one.
    """

    def __init__(self, slo: Slo, names: Sequence[str] = (), *, exact: int = EXACT) -> None:
        self._slo, self._names, self._limit = slo, names, exact
        self._all = _Group("all", exact)
        self._groups: dict[int, _Group] = {}

    def add(self, outcomes: OutcomeColumns, groups: Ints | None = None) -> None:
        """More outcomes; `groups` has the group of each."""
        self._all.add(outcomes, self._slo)
        if groups is None:
            return
        for number in np.unique(groups).tolist():
            chosen = groups == number
            self._group(number).add(OutcomeColumns(*(column[chosen] for column in outcomes)), self._slo)

    def _group(self, number: int) -> _Group:
        if number not in self._groups and len(self._groups) >= MOST_GROUPS - 1:
            number = -1
        if number not in self._groups:
            name = self._names[number] if 0 <= number < len(self._names) else str(number)
            self._groups[number] = _Group("others" if number < 0 else name or "unnamed", self._limit // 16)
        return self._groups[number]

    def summary(self) -> Summary:
        """All requests so far; groups only where there are several, in order of their numbers."""
        groups = [self._groups[number].summary() for number in sorted(self._groups)]
        return Summary(
            all=self._all.summary(),
            groups=tuple(groups) if len(groups) > 1 else (),
            curves=self._all.curves(),
        )


def summary_of(outcomes: OutcomeColumns, slo: Slo, workload: Workload | None = None) -> Summary:
    """The summary of outcomes in memory, by tenant where the workload is given."""
    made = Summariser(slo, () if workload is None else workload.header.tenants)
    made.add(outcomes, None if workload is None else workload.table().tenant)
    return made.summary()


class Tenants:
    """The tenants of a workload's requests in step with their outcomes: `next(rows)` gives those of the next `rows`."""

    def __init__(self, workload: Workload) -> None:
        self._batches: Iterator[Ints] = (batch.tenant for batch in workload.batches())
        self._left: Ints = np.empty(0, dtype=np.int64)

    def next(self, rows: int) -> Ints:
        """Raises ValueError where the workload has fewer requests left."""
        parts, have = [self._left], len(self._left)
        while have < rows:
            more = next(self._batches, None)
            if more is None:
                raise ValueError(f"{rows - have} requests more than the workload has")
            parts.append(more)
            have += len(more)
        joined = np.concatenate(parts)
        self._left = joined[rows:]
        return joined[:rows]


def blocks_good(outcomes: OutcomeColumns, slo: Slo, blocks: int) -> list[tuple[int, int]]:
    """(good, offered) of `blocks` runs of consecutive requests of about equal length: what a bootstrap draws from."""
    good = is_good(outcomes, slo)
    cuts = [len(good) * place // blocks for place in range(blocks + 1)]
    return [(int(good[start:end].sum()), end - start) for start, end in pairwise(cuts) if end > start]
