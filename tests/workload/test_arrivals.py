from __future__ import annotations

import numpy as np
import pytest

from vramledger.errors import InputError
from vramledger.workload.columnar.arrivals import (
    NS,
    Renewal,
    TraceTimes,
    first_of,
    time_scaled,
    with_arrivals,
)
from vramledger.workload.columns import Workload, columns_with, joined
from vramledger.workload.request import WorkloadHeader


def renewal(burstiness: float, rate_per_s: float = 20.0, seed: int = 3) -> Renewal:
    return Renewal(rate_per_s, burstiness, np.random.Generator(np.random.PCG64(seed)))


def trace(count: int = 1000, batches: int = 3) -> Workload:
    times = np.cumsum(np.arange(count) % 7) * NS // 10
    parts = [
        columns_with(
            arrival_ns=part, prompt_tokens=np.full(len(part), 9), output_tokens=np.full(len(part), 2)
        )
        for part in np.array_split(times, batches)
    ]
    return Workload(WorkloadHeader(name="t", source="made"), lambda: iter(parts))


@pytest.mark.parametrize("burstiness", [0.0, 0.5, 1.0, 2.5])
def test_gaps_have_the_rate_and_the_burstiness_asked_for(burstiness: float) -> None:
    """The mean of n gaps has a relative standard error of cv / sqrt(n); 40,000 gaps, four of them."""
    gaps = np.diff(renewal(burstiness).until(2_000 * NS))
    assert gaps.mean() == pytest.approx(NS / 20, rel=4 * burstiness / 200 + 1e-6)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.1, abs=1e-6)


def test_times_do_not_depend_on_how_they_are_asked_for() -> None:
    at_once = renewal(2.0).until(500 * NS)
    stepwise = renewal(2.0)
    parts = [stepwise.until(end) for end in range(0, 501 * NS, 7 * NS)]
    parts.append(stepwise.until(500 * NS))
    assert np.concatenate(parts)[: len(at_once)].tolist() == at_once.tolist()
    assert (np.diff(at_once) >= 0).all()


def test_a_traces_own_times_are_told_once_and_end() -> None:
    times = TraceTimes(trace())
    parts = [times.until(100 * NS), times.until(100 * NS)]
    done = [times.done]
    parts.append(times.until(10**15))
    assert [*done, times.done] == [False, True]
    assert np.concatenate(parts).tolist() == trace().table().arrival_ns.tolist()
    assert len(parts[1]) == 0


def test_scaling_stretches_time_and_keeps_every_request() -> None:
    whole, slower = trace().table(), time_scaled(trace(), 2.5)
    assert slower.table().arrival_ns.tolist() == [round(time * 2.5) for time in whole.arrival_ns.tolist()]
    assert slower.table().prompt_tokens.tolist() == whole.prompt_tokens.tolist()
    assert "scaled by 2.5" in slower.header.notes[-1]
    with pytest.raises(InputError):
        time_scaled(trace(), 0.0)


def test_arrivals_are_given_to_a_trace_whatever_its_batches() -> None:
    given = with_arrivals(trace(), rate_per_s=4.0, burstiness=1.5, seed=2).table()
    same = with_arrivals(trace(batches=50), rate_per_s=4.0, burstiness=1.5, seed=2).table()
    assert given.arrival_ns.tolist() == same.arrival_ns.tolist()
    assert given.arrival_ns[-1] / NS == pytest.approx(250, rel=0.2)


@pytest.mark.parametrize(
    ("requests", "seconds"), [(10, None), (700, None), (None, 100), (5, 0), (4000, 10**6)]
)
def test_the_beginning_of_a_workload(requests: int | None, seconds: int | None) -> None:
    duration_ns = None if seconds is None else seconds * NS
    kept = joined(first_of(trace(), requests=requests, duration_ns=duration_ns).batches())
    times = trace().table().arrival_ns.tolist()
    wanted = [time for time in times if duration_ns is None or time < duration_ns][:requests]
    assert kept.arrival_ns.tolist() == wanted


def test_a_request_in_months_neither_hangs_nor_leaves_64_bits() -> None:
    rare = renewal(3.0, rate_per_s=1e-7)
    times = rare.until(10**30)
    assert rare.done
    assert (np.diff(times) >= 0).all()
    assert 10 < len(times) < 2000
