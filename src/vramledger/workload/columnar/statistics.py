"""A workload's numbers, found in one pass and in the room of what is distinct: lengths, conversations, blocks."""

from __future__ import annotations

import math

import numpy as np

from vramledger.errors import InputError
from vramledger.workload.columnar.first_use import FirstUse
from vramledger.workload.columns import Ints, RequestColumns, Workload
from vramledger.workload.facts import QUANTILES, Reuse, Spread, TenantShare, WorkloadFacts

MINUTE_NS = 60 * 10**9
LARGEST_TENANTS = 10


def describe(workload: Workload) -> WorkloadFacts:
    """The facts of a workload. Raises InputError for one of no requests, and for more than 2**27 distinct blocks."""
    prompts, outputs, pauses = _Counts(), _Counts(), _Counts()
    conversations, tenants = _Counts(), _Counts()
    arrivals = _Arrivals()
    block_tokens = workload.header.block_tokens
    reuse = None if block_tokens is None else _Reuse(block_tokens)
    rows = following = branched = cancelled = deadlines = 0
    for batch in workload.batches():
        rows += batch.rows
        prompts.add(batch.prompt_tokens)
        outputs.add(batch.output_tokens)
        arrivals.add(batch.arrival_ns)
        conversations.add(batch.conversation[batch.conversation >= 0])
        tenants.add(batch.tenant)
        follows = batch.parent >= 0
        following += int(np.count_nonzero(follows))
        pauses.add(batch.pause_ns[follows])
        branched += int(np.count_nonzero(batch.branches > 1))
        cancelled += int(np.count_nonzero(batch.cancel_ns >= 0))
        deadlines += int(np.count_nonzero((batch.deadline_ns >= 0) | (batch.first_token_deadline_ns >= 0)))
        if reuse is not None:
            reuse.add(batch)
    if not rows:
        raise InputError(f"{workload.header.source} holds no request", file=workload.header.source)
    names = workload.header.tenants
    by_size = sorted(
        zip(tenants.counts.tolist(), tenants.values.tolist(), strict=True),
        key=lambda pair: (-pair[0], pair[1]),
    )
    return WorkloadFacts(
        requests=rows,
        span_ns=arrivals.span_ns,
        rate_per_s=rows * 10**9 / arrivals.span_ns if arrivals.span_ns else None,
        arrival_cv=arrivals.cv(),
        busiest_minute=arrivals.busiest_minute(),
        prompt_tokens=prompts.spread(),
        output_tokens=outputs.spread(),
        reuse=None if reuse is None or not reuse.named else reuse.facts(),
        conversations=len(conversations.values),
        requests_of_conversations=int(conversations.counts.sum()),
        longest_conversation=int(conversations.counts.max(initial=0)),
        following=following,
        pause_ns=pauses.spread() if following else None,
        branched=branched,
        cancelled=cancelled,
        with_deadline=deadlines,
        num_tenants=len(tenants.values),
        tenants=tuple(
            TenantShare(tenant=names[number] if 0 <= number < len(names) else str(number), requests=count)
            for count, number in by_size[:LARGEST_TENANTS]
        ),
    )


class _Counts:
    """Distinct values and how often each came."""

    def __init__(self) -> None:
        self.values: Ints = np.empty(0, dtype=np.int64)
        self.counts: Ints = np.empty(0, dtype=np.int64)

    def add(self, values: Ints) -> None:
        new, counts = np.unique(values, return_counts=True)
        both = np.concatenate((self.values, new))
        self.values, which = np.unique(both, return_inverse=True)
        weights = np.concatenate((self.counts, counts))
        self.counts = np.zeros(len(self.values), dtype=np.int64)
        np.add.at(self.counts, which, weights)

    def spread(self) -> Spread:
        upto = np.cumsum(self.counts)
        count = int(upto[-1])
        total = sum(
            value * times for value, times in zip(self.values.tolist(), self.counts.tolist(), strict=True)
        )
        at = [int(self.values[np.searchsorted(upto, -(-count * part // 100))]) for part in QUANTILES]
        return Spread(
            total=total,
            mean=total / count,
            p50=at[0],
            p90=at[1],
            p95=at[2],
            p99=at[3],
            max=int(self.values[-1]),
        )


class _Arrivals:
    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0
        self._gaps = 0
        self._squares = 0.0
        self._minute = -1
        self._in_minute = 0
        self._most = 0

    @property
    def span_ns(self) -> int:
        return self._last - (self._first or 0)

    def add(self, arrivals: Ints) -> None:
        if not len(arrivals):
            return
        if self._first is None:
            self._first = self._last = int(arrivals[0])
            gaps = np.diff(arrivals)
        else:
            gaps = np.diff(arrivals, prepend=self._last)
        self._last = int(arrivals[-1])
        self._gaps += len(gaps)
        self._squares += float(np.square(gaps / 1e9).sum())
        minutes, counts = np.unique((arrivals - self._first) // MINUTE_NS, return_counts=True)
        for minute, count in zip(minutes.tolist(), counts.tolist(), strict=True):
            self._in_minute = self._in_minute + count if minute == self._minute else count
            self._minute = minute
            self._most = max(self._most, self._in_minute)

    def cv(self) -> float | None:
        if self._gaps < 2 or not self.span_ns:
            return None
        mean = self.span_ns / 1e9 / self._gaps
        return math.sqrt(max(self._squares / self._gaps - mean * mean, 0.0)) / mean

    def busiest_minute(self) -> float | None:
        if self.span_ns < 2 * MINUTE_NS:
            return None
        return self._most / ((self._gaps + 1) * MINUTE_NS / self.span_ns)


class _Reuse:
    """Which blocks came before; those of a prompt that nobody named came never."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._first_use = FirstUse(block_tokens)
        self.named = 0
        self._blocks = 0
        self._hits = 0
        self._tokens = 0
        self._requests = 0

    def add(self, batch: RequestColumns) -> None:
        named = np.minimum(np.diff(batch.block_offsets), -(-batch.prompt_tokens // self._block_tokens))
        self.named += int(named.sum())
        self._blocks += int(np.maximum(named, batch.prompt_tokens // self._block_tokens).sum())
        hits, _ = self._first_use.found(batch)
        self._hits += int(hits.sum())
        self._requests += int(np.count_nonzero(hits))
        self._tokens += int(np.minimum(hits * self._block_tokens, batch.prompt_tokens).sum())

    def facts(self) -> Reuse:
        return Reuse(
            block_tokens=self._block_tokens,
            prompt_blocks=self._blocks,
            reusable_blocks=self._hits,
            reusable_tokens=self._tokens,
            requests_with_a_hit=self._requests,
        )
