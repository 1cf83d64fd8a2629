"""Planted leaks are found, wandering noise is none, and intervals hold the truth as often as they say."""

from __future__ import annotations

from math import isclose
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.experiment.served import Served
from vramledger.experiment.slope import slope_of, student_share
from vramledger.experiment.trend import trends
from vramledger.observation import Sample

MIB = 2**20
GIB = 2**30


def wandering(random: Random, count: int, memory: float) -> list[float]:
    """AR(1) noise of variance 1, from its own distribution."""
    value, found = random.gauss(0, 1), []
    for _ in range(count):
        found.append(value)
        value = memory * value + random.gauss(0, (1 - memory * memory) ** 0.5)
    return found


def memory_samples(values: list[float], name: str = "rss_bytes") -> list[Sample]:
    return [
        Sample(at_s=1e9 + at, source="proc:7", name=name, value=int(value), pid=7)
        for at, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.30265), (5, 2.57058), (11, 2.20099), (23, 2.06866)]
)
def test_students_t_has_the_tables_97_5_percent_points(freedom: int, value: float) -> None:
    assert isclose(student_share(value, freedom), 0.975, abs_tol=1e-6)
    assert isclose(student_share(-value, freedom), 0.025, abs_tol=1e-6)


@given(st.floats(-1e6, 1e6), st.floats(-1e3, 1e3))
def test_a_line_without_noise_has_its_own_slope(level: float, slope: float) -> None:
    times = [float(at) for at in range(40)]
    found = slope_of(times, [level + slope * at for at in times], 0.95)
    assert found is not None
    slack = 1e-6 * (abs(slope) + abs(level) * 1e-6 + 1e-9)
    assert abs(found.value - slope) <= slack
    assert found.low - slack <= slope <= found.high + slack


@pytest.mark.parametrize("memory", [0.0, 0.9, 0.98])
def test_the_interval_holds_the_slope_as_often_as_it_says(memory: float) -> None:
    random = Random(5)
    times = [float(at) for at in range(120)]
    held = 0
    for _ in range(100):
        noise = wandering(random, 120, memory)
        found = slope_of(times, [0.01 * at + rest for at, rest in zip(times, noise, strict=True)], 0.9)
        assert found is not None
        held += found.low <= 0.01 <= found.high
    assert held >= 84  # 90 expected; fewer than 84 has a chance of 2 %, were it 90 %


def test_a_planted_leak_is_found_with_its_size() -> None:
    random = Random(2)
    noise = wandering(random, 1800, 0.95)
    leak_bytes_per_s = 300 * MIB / 3600
    values = [2 * GIB + leak_bytes_per_s * at + 8 * MIB * rest for at, rest in enumerate(noise)]
    (found,) = trends(memory_samples(values))
    assert found.verdict == "grows"
    assert found.low_per_hour <= 300 * MIB <= found.high_per_hour
    assert found.low_per_hour > 200 * MIB
    assert found.unit == "bytes"
    assert found.samples == 1800
    assert found.source == "proc:7"


def test_memory_that_wanders_does_not_grow() -> None:
    random = Random(3)
    grew = 0
    for _ in range(40):
        noise = wandering(random, 600, 0.99)
        (found,) = trends(memory_samples([2 * GIB + 8 * MIB * rest for rest in noise]))
        grew += found.verdict == "grows"
    assert grew <= 3  # 1 expected of 40 at 95 %, one-sided


def test_memory_that_filled_up_at_first_is_flat() -> None:
    random = Random(4)
    values = [2 * GIB + 200 * MIB * min(at / 300, 1.0) + MIB * random.gauss(0, 1) for at in range(1800)]
    (found,) = trends(memory_samples(values))
    assert found.verdict == "flat"
    assert "then stayed" in found.words


def test_one_of_many_that_seems_to_grow_is_not_said_to() -> None:
    random = Random(9)
    samples = [
        Sample(at_s=at, source=f"proc:{pid}", name="rss_bytes", value=int(GIB + 8 * MIB * rest), pid=pid)
        for pid in range(40)
        for at, rest in enumerate(wandering(random, 120, 0.8))
    ]
    found = trends(samples, confidence=0.8)
    assert len(found) == 40
    assert any(trend.low_per_hour > 0 or trend.high_per_hour < 0 for trend in found)
    assert all(trend.verdict == "untold" for trend in found)


def test_what_never_changes_is_flat_and_what_is_short_is_untold() -> None:
    (still,) = trends(memory_samples([float(GIB)] * 600))
    assert (still.verdict, still.slope_per_hour) == ("flat", 0.0)
    (short,) = trends(memory_samples([float(GIB + MIB * at) for at in range(20)]))
    assert short.verdict == "untold"


def test_the_pool_counts_only_when_nobody_runs() -> None:
    samples = []
    for at in range(600):
        busy = at % 3 != 0
        samples += [
            Sample(at_s=at, source="metrics", name="running_requests", value=4 if busy else 0),
            Sample(at_s=at, source="metrics", name="kv_usage_ratio", value=0.8 if busy else 0.0001 * at),
        ]
    (found,) = trends(samples)
    assert found.name == "kv_usage_at_rest_ratio"
    assert found.samples == 200
    assert found.verdict == "grows"
    assert isclose(found.slope_per_hour, 0.36, rel_tol=1e-3)


def test_preemptions_that_come_ever_more_often() -> None:
    random = Random(6)
    total, samples = 0, []
    for at in range(1200):
        total += random.random() < at / 1200
        samples.append(Sample(at_s=at, source="metrics", name="total_preempted_requests", value=total))
    (found,) = trends(samples)
    assert (found.name, found.verdict) == ("preemptions_per_s", "grows")
    assert found.low_per_hour <= 3.0 <= found.high_per_hour


def test_time_to_first_token_that_creeps_up() -> None:
    random = Random(7)
    rows = [
        Served(
            number=at,
            due_ns=at * 10**9,
            sent_ns=at * 10**9,
            first_token_ns=at * 10**9 + int((0.2 + 0.1 * at / 1800 + random.expovariate(50)) * 1e9),
            asked_prompt_tokens=1,
            asked_output_tokens=1,
        )
        for at in range(1800)
    ]
    (found,) = trends([], served=rows)
    assert (found.name, found.verdict) == ("ttft_ns", "grows")
    assert found.low_per_hour <= 0.2e9 <= found.high_per_hour
