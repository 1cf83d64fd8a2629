"""Figures of rows of which each is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.experiment.load_figures import drift_of, figures_of, grown
from vramledger.experiment.result import LoadFigures
from vramledger.experiment.served import Served
from vramledger.observation import Sample
from vramledger.simulation.settings import Slo
from vramledger.simulation.summary import Quantiles

MS = 1_000_000
SECOND = 1_000_000_000


def answered(number: int, *, due_s: float, ttft_ms: int = 100, tokens: int = 11, tpot_ms: int = 10) -> Served:
    due_ns = int(due_s * SECOND)
    first_ns = due_ns + ttft_ms * MS
    last_ns = first_ns + (tokens - 1) * tpot_ms * MS
    return Served(
        number=number,
        due_ns=due_ns,
        sent_ns=due_ns + 1 * MS,
        first_token_ns=first_ns,
        last_token_ns=last_ns,
        end_ns=last_ns,
        asked_prompt_tokens=7,
        asked_output_tokens=tokens,
        prompt_tokens=13,
        cached_prompt_tokens=5,
        output_tokens=tokens,
        events=tokens,
        status=200,
        whole=True,
    )


def turned_away(number: int, *, due_s: float, status: int) -> Served:
    due_ns = int(due_s * SECOND)
    return Served(
        number=number,
        due_ns=due_ns,
        sent_ns=due_ns,
        end_ns=due_ns + 2 * MS,
        asked_prompt_tokens=7,
        asked_output_tokens=3,
        status=status,
    )


def reading(at_s: float, name: str, value: float, *, source: str = "metrics", label: str = "") -> Sample:
    return Sample(at_s=at_s, source=source, name=name, value=value, label=label)


def test_each_request_is_counted_once_by_what_became_of_it() -> None:
    rows = [
        answered(0, due_s=0.0),
        answered(1, due_s=1.0, ttft_ms=301),
        turned_away(2, due_s=2.0, status=429),
        turned_away(3, due_s=3.0, status=500),
        Served(
            number=4,
            due_ns=4 * SECOND,
            sent_ns=4 * SECOND,
            end_ns=5 * SECOND,
            asked_prompt_tokens=7,
            asked_output_tokens=3,
            left=True,
        ),
    ]
    figures = figures_of(rows, Slo(ttft_ms=300.0))
    assert (figures.offered, figures.finished, figures.refused, figures.failed, figures.left) == (
        5,
        2,
        1,
        1,
        1,
    )
    assert figures.good == 1
    assert figures.goodput == 0.2
    assert figures.offered_per_s == 1.0
    assert (figures.ttft_ns.p50, figures.ttft_ns.max) == (100 * MS, 301 * MS)
    assert figures.tpot_ns.p99 == 10 * MS
    assert figures.latency_ns.count == 2
    assert figures.prompt_tokens == 26
    assert figures.cached_prompt_tokens == 10
    assert figures.output_tokens == 22
    assert figures.output_tokens_per_s == 22 / 5
    assert (figures.preemptions, figures.kv_usage_peak_ratio, figures.running_peak) == (None, None, None)


def test_nothing_offered_is_nothing_missed() -> None:
    figures = figures_of([], Slo())
    assert figures.offered == 0
    assert figures.goodput == 1.0


def test_samples_tell_preemptions_running_and_the_pools_peak() -> None:
    samples = [
        reading(1, "total_preempted_requests", 40, label="0"),
        reading(2, "total_preempted_requests", 43, label="0"),
        reading(1, "total_preempted_requests", 10, label="1"),
        reading(2, "total_preempted_requests", 2, label="1"),
        reading(1, "running_requests", 3, label="0"),
        reading(1, "running_requests", 4, label="1"),
        reading(2, "running_requests", 5, label="0"),
        reading(1, "kv_usage_ratio", 0.25),
        reading(2, "kv_usage_ratio", 0.75),
    ]
    figures = figures_of([], Slo(), samples=samples)
    assert figures.preemptions == 3 + 2  # the second began anew
    assert figures.running_peak == 7
    assert figures.kv_usage_peak_ratio == 0.75


def test_a_pool_told_in_tokens_is_a_share_of_its_size() -> None:
    samples = [reading(1, "kv_used_tokens", 300), reading(2, "kv_used_tokens", 500)]
    assert figures_of([], Slo(), samples=samples, pool_tokens=1000).kv_usage_peak_ratio == 0.5
    assert figures_of([], Slo(), samples=samples, pool_tokens=400).kv_usage_peak_ratio == 1.0
    assert figures_of([], Slo(), samples=samples).kv_usage_peak_ratio is None


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=30))
def test_a_counter_that_only_rises_grew_by_its_ends(steps: list[int]) -> None:
    counts = [sum(steps[: place + 1]) for place in range(len(steps))]
    samples = [reading(at, "n_count", count) for at, count in enumerate(counts)]
    assert grown(samples, "n_count") == counts[-1] - counts[0]


def test_one_sample_of_a_counter_tells_nothing() -> None:
    assert grown([reading(1, "n_count", 5)], "n_count") is None


def test_a_client_that_is_late_against_what_it_measures_is_not_trusted() -> None:
    prompt = [answered(number, due_s=number) for number in range(100)]
    late = [
        Served(
            number=row.number,
            due_ns=row.due_ns,
            sent_ns=row.due_ns + 20 * MS,
            first_token_ns=row.first_token_ns,
            asked_prompt_tokens=1,
            asked_output_tokens=1,
        )
        for row in prompt
    ]
    assert drift_of(prompt).is_trusted
    assert drift_of(prompt).late_ns.p99 == 1 * MS
    assert not drift_of(late).is_trusted
    slow = [answered(number, due_s=number, ttft_ms=1000) for number in range(100)]
    assert drift_of([*slow, late[0]]).is_trusted  # one of a hundred changes no percentile


def test_mean_lengths_are_those_of_requests_that_were_answered() -> None:
    figures = LoadFigures(
        offered=10, refused=6, finished=3, ttft_ns=Quantiles(count=4), prompt_tokens=80, output_tokens=20
    )
    assert (figures.prompt_tokens_mean, figures.output_tokens_mean) == (20.0, 5.0)
    assert LoadFigures(offered=10, refused=10).prompt_tokens_mean is None
