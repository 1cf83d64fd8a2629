"""When requests come: drawn gaps, a trace's own times, a trace's times stretched or replaced.

A stream of arrivals is asked `until(end_ns)` again and again and answers with the times before `end_ns` that it has not told yet,
in order. What it draws does not depend on how it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import structs

from vramledger.errors import InputError
from vramledger.workload.columns import RequestColumns, Workload
from vramledger.workload.request import WorkloadHeader

Ints = npt.NDArray[np.int64]
NS = 10**9
LAST_NS = 2**61
"""Nothing is sent after 73 years."""


class Arrivals(Protocol):
    """Times of arrival in order."""

    @property
    def done(self) -> bool:
        """Whether all times were told."""

    def until(self, end_ns: int) -> Ints:
        """Times before `end_ns` that were not told yet; `done` is True when there are no more."""


class Renewal:
    """Independent gaps of a mean and a coefficient of variation: 1 is Poisson, 0 is even, all others are gamma."""

    def __init__(self, rate_per_s: float, burstiness: float, rng: np.random.Generator) -> None:
        self._mean_ns = NS / rate_per_s
        self._burstiness = burstiness
        self._rng = rng
        self._told = np.empty(0, dtype=np.int64)
        self._last_ns = 0
        # So few at once that their sum stays within 64 bits.
        self._drawn = 1024 if rate_per_s >= 0.001 else 16

    @property
    def done(self) -> bool:
        """Whether time is over."""
        return self._last_ns >= LAST_NS and not len(self._told)

    def until(self, end_ns: int) -> Ints:
        """See `Arrivals`."""
        parts = [self._told]
        while self._last_ns < min(end_ns, LAST_NS):
            times = self._last_ns + np.cumsum(self._gaps())
            self._last_ns = int(times[-1])
            parts.append(times)
        times = np.concatenate(parts)
        here = int(np.searchsorted(times, end_ns, side="left"))
        self._told = times[here:]
        return times[:here]

    def _gaps(self) -> Ints:
        if self._burstiness == 0:
            gaps = np.full(self._drawn, self._mean_ns)
        elif self._burstiness == 1:
            gaps = self._rng.exponential(self._mean_ns, self._drawn)
        else:
            variance = self._burstiness**2
            gaps = self._rng.gamma(1 / variance, variance * self._mean_ns, self._drawn)
        whole: Ints = np.rint(np.minimum(gaps, LAST_NS / self._drawn)).astype(np.int64)
        return whole


class TraceTimes:
    """The times of a trace's requests."""

    def __init__(self, trace: Workload) -> None:
        self._read = False
        self._batches: Iterator[RequestColumns] = trace.batches()
        self._told = np.empty(0, dtype=np.int64)

    @property
    def done(self) -> bool:
        """Whether all were told."""
        return self._read and not len(self._told)

    def until(self, end_ns: int) -> Ints:
        """See `Arrivals`."""
        parts = [self._told]
        while not self._read and (len(parts[-1]) == 0 or parts[-1][-1] < end_ns):
            batch = next(self._batches, None)
            if batch is None:
                self._read = True
            else:
                parts.append(batch.arrival_ns)
        times = np.concatenate(parts)
        here = int(np.searchsorted(times, end_ns, side="left"))
        self._told = times[here:]
        return times[:here]


def time_scaled(workload: Workload, factor: float) -> Workload:
    """The same requests over `factor` times the time: all of them, so that what they share stays shared.

    Only times of arrival change. What a client does by itself (a pause, giving up, a deadline) takes as long as before.
    """
    if not 1e-9 <= factor <= 1e9:
        raise InputError(f"a time axis cannot be scaled by {factor:g}", value=factor)

    def batches() -> Iterator[RequestColumns]:
        for batch in workload.batches():
            times = np.rint(batch.arrival_ns * factor).astype(np.int64)
            yield batch._replace(arrival_ns=times)

    return Workload(_noted(workload, f"times of arrival scaled by {factor:g}"), batches)


def with_arrivals(
    workload: Workload, *, rate_per_s: float, burstiness: float = 1.0, seed: int = 0
) -> Workload:
    """The same requests in the same order, sent at drawn times instead of the trace's own.

    For traces that have no times, or whose arrivals are not what is asked about. Requests that follow another one are sent
    after its end all the same.
    """

    def batches() -> Iterator[RequestColumns]:
        rng = np.random.Generator(np.random.PCG64(seed))
        gaps = Renewal(rate_per_s, burstiness, rng)
        told = np.empty(0, dtype=np.int64)
        end_ns = 0
        for batch in workload.batches():
            while len(told) < batch.rows:
                end_ns += max(int(batch.rows / rate_per_s * NS), 1)
                told = np.concatenate([told, gaps.until(end_ns)])
            yield batch._replace(arrival_ns=told[: batch.rows])
            told = told[batch.rows :]

    return Workload(
        _noted(workload, f"arrivals drawn: {rate_per_s:g} /s, burstiness {burstiness:g}, seed {seed}"),
        batches,
    )


def first_of(workload: Workload, *, requests: int | None = None, duration_ns: int | None = None) -> Workload:
    """The beginning of a workload: so many requests, or those of so much time."""

    def batches() -> Iterator[RequestColumns]:
        left = requests
        for batch in workload.batches():
            count = batch.rows if left is None else min(left, batch.rows)
            if duration_ns is not None:
                count = min(count, int(np.searchsorted(batch.arrival_ns, duration_ns, side="left")))
            yield _cut(batch, count)
            left = None if left is None else left - count
            if count < batch.rows or left == 0:
                return

    return Workload(workload.header, batches)


def _cut(batch: RequestColumns, count: int) -> RequestColumns:
    if count == batch.rows:
        return batch
    offsets = batch.block_offsets[: count + 1]
    short = {
        name: values[:count] for name, values in batch._asdict().items() if not name.startswith("block_")
    }
    return RequestColumns(**short, block_offsets=offsets, block_ids=batch.block_ids[: int(offsets[-1])])


def _noted(workload: Workload, note: str) -> WorkloadHeader:
    header = workload.header
    return structs.replace(header, notes=(*header.notes, note))
