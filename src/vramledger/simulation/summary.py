"""A run in a page of figures, as values: latencies, goodput over what was offered, the pool's quantiles.

`measures.py` fills these from outcomes by the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from msgspec import Struct

from vramledger.kvcache.blocks.layout import GroupKind, PoolLayout
from vramledger.simulation.outcome import PoolSample
from vramledger.simulation.step_model import PS_PER_S

FULL = 0.95
"""The share of the usable blocks in use from which a pool counts as nearly full."""
PERCENTS = (50, 90, 95, 99)
CURVE_PERCENTS = (1, 2, *range(5, 100, 5), 98, 99, 100)
"""Of the distribution of a quantity as a curve; 100 is the most."""


class Quantiles(Struct, frozen=True, kw_only=True):
    """One quantity over many cases, in its own unit. All figures are 0 where `count` is.

    A percentile is the smallest value that at least so many percent of the cases do not exceed (nearest rank).
    `relative_error` is how far the percentiles may be off where only a histogram was kept; mean and max are exact.
    """

    count: int = 0
    mean: float = 0.0
    p50: int = 0
    p90: int = 0
    p95: int = 0
    p99: int = 0
    max: int = 0
    relative_error: float = 0.0


class GroupSummary(Struct, frozen=True, kw_only=True):
    """The requests of one tenant or cohort, or all of them.

    `offered` are all of them, whatever became of them; `good` those that met every aim. A cancelled request is good if no aim was
    missed when its client left. TTFT, TPOT (a token after the first) and queue time are over the requests that got so far,
    latency over those that finished, all in picoseconds: what was never served is in none of them, and in `offered`.
    """

    name: str
    offered: int
    finished: int = 0
    cancelled: int = 0
    never_fits: int = 0
    expired: int = 0
    livelocked: int = 0
    unfinished: int = 0
    rejected: int = 0
    failed: int = 0
    good: int = 0
    missed_ttft: int = 0
    missed_tpot: int = 0
    missed_latency: int = 0
    ttft_ps: Quantiles = Quantiles()
    tpot_ps: Quantiles = Quantiles()
    latency_ps: Quantiles = Quantiles()
    queue_ps: Quantiles = Quantiles()
    prompt_tokens: int = 0
    output_tokens: int = 0
    hit_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    preempted: int = 0
    longest_prompt_tokens: int = 0
    first_sent_ps: int = 0
    last_sent_ps: int = 0
    last_end_ps: int = 0
    never_fits_numbers: tuple[int, ...] = ()
    livelocked_numbers: tuple[int, ...] = ()

    @property
    def goodput(self) -> float:
        """Good requests of those offered; 1 where none was."""
        return self.good / self.offered if self.offered else 1.0

    @property
    def seconds(self) -> float:
        """From the first request's arrival to the last end."""
        return max(self.last_end_ps, self.last_sent_ps) / PS_PER_S - self.first_sent_ps / PS_PER_S

    @property
    def offered_per_s(self) -> float:
        """Requests a second while requests came."""
        return _rate(self.offered - 1, self.last_sent_ps - self.first_sent_ps)

    @property
    def good_per_s(self) -> float:
        """Good requests a second, of the offered rate."""
        return self.offered_per_s * self.goodput

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens generated a second, from the first arrival to the last end."""
        return self.output_tokens / self.seconds if self.seconds > 0 else 0.0


class PoolSummary(Struct, frozen=True, kw_only=True):
    """A pool over time, one replica's where there are several: quantiles over samples at equal spaces of time.

    `active_tokens` are in the pool once however many share them, `logical_tokens` once a sequence. `waste_tokens` is what
    used blocks have room for beyond that (the rest of last blocks), None for a pool of several groups. `idle_share` is the time in
    which nothing runs or waits. Times are -1 for never.
    """

    capacity_tokens: int
    usable_blocks: int
    active_tokens: Quantiles = Quantiles()
    logical_tokens: Quantiles = Quantiles()
    used_blocks: Quantiles = Quantiles()
    cached_blocks: Quantiles = Quantiles()
    waste_tokens: Quantiles | None = None
    running: Quantiles = Quantiles()
    waiting: Quantiles = Quantiles()
    full_share: float = 0.0
    idle_share: float = 0.0
    full_ps: int = 0
    first_full_ps: int = -1
    peak_ps: int = -1
    samples: int = 0
    spacing_ps: int = 0


class Curves(Struct, frozen=True, kw_only=True):
    """The distributions of times in picoseconds: a value for each of `CURVE_PERCENTS`, none where nothing got so far."""

    ttft_ps: tuple[int, ...] = ()
    tpot_ps: tuple[int, ...] = ()
    latency_ps: tuple[int, ...] = ()
    queue_ps: tuple[int, ...] = ()


class Summary(Struct, frozen=True, kw_only=True):
    """All requests, and each group where there are several; `curves` are those of all requests."""

    all: GroupSummary
    groups: tuple[GroupSummary, ...] = ()
    curves: Curves = Curves()


def quantiles_of(values: Iterable[int]) -> Quantiles:
    """Exact quantiles of values that fit in memory."""
    ordered = sorted(values)
    if not ordered:
        return Quantiles()
    p50, p90, p95, p99 = (ordered[rank_of(len(ordered), percent)] for percent in PERCENTS)
    return Quantiles(
        count=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=ordered[-1],
    )


def rank_of(count: int, percent: int) -> int:
    """The place, from 0, of the nearest-rank percentile among `count` values in order."""
    return max(-(-count * percent // 100) - 1, 0)


def pool_summary(samples: Sequence[PoolSample], layout: PoolLayout) -> PoolSummary:
    """The pool's quantiles. Samples of several replicas count each on its own."""
    block_tokens = tokens_a_block(layout)
    usable = layout.usable_blocks
    times = sorted({sample.at_ps for sample in samples})
    spacing_ps = min((later - earlier for earlier, later in pairwise(times)), default=0)
    full = [sample.at_ps for sample in samples if sample.used_blocks >= FULL * usable]
    peak = max(samples, key=lambda sample: (sample.used_blocks, -sample.at_ps), default=None)
    return PoolSummary(
        capacity_tokens=capacity_tokens(layout),
        usable_blocks=usable,
        active_tokens=quantiles_of(sample.physical_tokens for sample in samples),
        logical_tokens=quantiles_of(sample.logical_tokens for sample in samples),
        used_blocks=quantiles_of(sample.used_blocks for sample in samples),
        cached_blocks=quantiles_of(sample.cached_blocks for sample in samples),
        waste_tokens=quantiles_of(
            max(sample.used_blocks * block_tokens - sample.physical_tokens, 0) for sample in samples
        )
        if layout.is_plain
        else None,
        running=quantiles_of(sample.running for sample in samples),
        waiting=quantiles_of(sample.waiting for sample in samples),
        full_share=len(full) / len(samples) if samples else 0.0,
        idle_share=sum(not (item.running or item.waiting) for item in samples) / max(len(samples), 1),
        full_ps=len(set(full)) * spacing_ps,
        first_full_ps=min(full, default=-1),
        peak_ps=-1 if peak is None else peak.at_ps,
        samples=len(samples),
        spacing_ps=spacing_ps,
    )


def capacity_tokens(layout: PoolLayout) -> int:
    """Tokens that a pool has room for where every one is kept: of several groups that keep all tokens each has its share of the
    blocks, and what windows and states hold beside them is left out."""
    full = [group.block_tokens for group in layout.groups if group.kind is GroupKind.FULL]
    per_token = sum(Fraction(1, tokens) for tokens in full) or Fraction(1, tokens_a_block(layout))
    return int(layout.usable_blocks / per_token)


def tokens_a_block(layout: PoolLayout) -> int:
    """Tokens that one block has room for; of several groups the widest."""
    return max((group.block_tokens for group in layout.groups), default=1)


def _rate(count: int, span_ps: int) -> float:
    return count * PS_PER_S / span_ps if span_ps > 0 and count > 0 else 0.0
