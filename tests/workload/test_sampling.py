from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from vramledger.errors import InputError
from vramledger.workload.cohort import Cohort
from vramledger.workload.cohort_file import read_cohorts
from vramledger.workload.columnar.sampling import sample_workload
from vramledger.workload.columns import RequestColumns, Workload, columns_with
from vramledger.workload.quantiles import Quantiles
from vramledger.workload.request import WorkloadHeader
from workload.prefix_oracle import hit_share

EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"
QA = Cohort(
    name="qa",
    prompt_tokens=Quantiles(p50=1024, p95=2048, p99=4096),
    output_tokens=Quantiles(p50=80, p95=200, p99=500),
    rate_per_s=10.0,
    prefix_hit=0.5,
    prefixes=8,
    prefix_skew=1.0,
)
REPORTS = Cohort(
    name="reports",
    tenant="analysts",
    prompt_tokens=Quantiles(p50=8192, p95=20480, p99=40960),
    output_tokens=Quantiles(p50=1024, p95=3072, p99=8192),
    concurrency=16,
    prefix_hit=0.1,
    deadline_ms=90_000,
    cancel_probability=0.25,
    cancel_after_ms=Quantiles(p50=1000, p95=5000, p99=9000),
)


def same(one: RequestColumns, other: RequestColumns) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


def test_the_same_seed_gives_the_same_requests_however_many_are_made_at_once() -> None:
    whole = sample_workload((QA, REPORTS), requests=3000, seed=5)
    pieces = sample_workload((QA, REPORTS), requests=3000, seed=5, window_requests=101)
    assert same(whole.table(), pieces.table())
    assert same(whole.table(), whole.table())
    assert not same(whole.table(), sample_workload((QA, REPORTS), requests=3000, seed=6).table())
    fewer = sample_workload((QA, REPORTS), requests=1000, seed=5).table()
    assert fewer.prompt_tokens.tolist() == whole.table().prompt_tokens[:1000].tolist()


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("cohort", [QA, structs.replace(REPORTS, concurrency=None, rate_per_s=1.0)])
def test_quantiles_come_back(cohort: Cohort, stratified: bool) -> None:
    """Of 8,192 requests; a sampled quantile's rank has a standard deviation of sqrt(n q (1 - q)), in strata of one a stratum."""
    count = 8192
    table = sample_workload((cohort,), requests=count, seed=1, stratified=stratified).table()
    for values, quantiles in ((table.prompt_tokens, cohort.prompts), (table.output_tokens, cohort.outputs)):
        ordered = np.sort(values)
        for place, value in quantiles.points:
            slack = 8 if stratified else 4 * (count * place * (1 - place)) ** 0.5
            low, high = round(place * count - slack), round(place * count + slack)
            assert ordered[low - 1] <= value <= ordered[high]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("texts", "skew"), [(1, 0.0), (8, 1.0), (50, 0.5)])
def test_an_unlimited_cache_finds_the_share_asked_for(share: float, texts: int, skew: float) -> None:
    cohort = structs.replace(QA, prefix_hit=share, prefixes=texts, prefix_skew=skew)
    assert hit_share(sample_workload((cohort,), requests=4096, seed=2)) == pytest.approx(share, abs=0.005)


def test_a_text_of_so_many_tokens_begins_every_prompt() -> None:
    cohort = structs.replace(QA, prefix_hit=None, prefix_tokens=500, prefixes=3)
    requests = list(sample_workload((cohort,), requests=500, seed=2).requests())
    assert {len(request.blocks) for request in requests if request.prompt_tokens > 500} == {500 // 16}
    assert len({request.blocks[0] for request in requests if request.blocks}) == 3


def test_nothing_is_shared_between_cohorts() -> None:
    workload = sample_workload((QA, structs.replace(QA, name="other")), requests=400, seed=2)
    assert len(workload.header.boundaries) == 1
    by_first: dict[int, set[int]] = {}
    for request in sample_workload((QA, REPORTS), requests=400, seed=2).requests():
        if request.blocks:
            by_first.setdefault(request.blocks[0], set()).add(request.boundary)
    assert all(len(boundaries) == 1 for boundaries in by_first.values())


def test_users_wait_for_their_answers() -> None:
    requests = list(sample_workload((REPORTS, QA), requests=600, seed=4).requests())
    times = [request.arrival_ns for request in requests]
    assert times == sorted(times)
    reports = [number for number, request in enumerate(requests) if request.tenant == 0]
    followed = [requests[number].parent for number in reports]
    assert followed[:16] == [None] * 16
    assert followed[16:] == reports[:-16]
    assert {request.pause_ns for request in requests} == {0}
    assert all(request.parent is None for request in requests if request.tenant == 1)


def test_deadlines_and_clients_who_give_up() -> None:
    table = sample_workload((REPORTS,), requests=2048, seed=4).table()
    assert set(table.deadline_ns.tolist()) == {90 * 10**9}
    gave_up = table.cancel_ns[table.cancel_ns >= 0]
    assert len(gave_up) / 2048 == pytest.approx(0.25, abs=0.04)
    assert np.median(gave_up) == pytest.approx(10**9, rel=0.2)


def test_bounds_of_clients() -> None:
    bounded = sample_workload((structs.replace(QA, max_output_tokens=100),), requests=500, seed=1).table()
    known = sample_workload((structs.replace(QA, max_output_tokens="output"),), requests=500, seed=1).table()
    unknown = sample_workload((QA,), requests=500, seed=1).table()
    assert set(bounded.max_output_tokens.tolist()) == {100}
    assert bounded.output_tokens.tolist() == np.minimum(unknown.output_tokens, 100).tolist()
    assert known.max_output_tokens.tolist() == known.output_tokens.tolist() == unknown.output_tokens.tolist()
    assert set(unknown.max_output_tokens.tolist()) == {-1}


def test_cohorts_of_a_tenant_share_one_bursty_stream_by_their_rates() -> None:
    bursty = structs.replace(QA, burstiness=3.0)
    other = structs.replace(bursty, name="long", rate_per_s=30.0, prompt_tokens=5, prefix_hit=None)
    table = sample_workload((bursty, other), requests=20_000, seed=9).table()
    gaps = np.diff(table.arrival_ns)
    assert gaps.mean() == pytest.approx(10**9 / 40, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.1)
    assert (table.prompt_tokens == 5).mean() == pytest.approx(0.75, abs=0.02)


def test_a_traces_arrivals_carry_cohorts() -> None:
    times = np.cumsum(np.arange(500) % 9) * 10**9
    trace = Workload.of(
        WorkloadHeader(name="t", source="made"),
        columns_with(arrival_ns=times, prompt_tokens=times * 0 + 1, output_tokens=times * 0 + 1),
    )
    assert sample_workload((QA, REPORTS), arrivals=trace).table().arrival_ns.tolist() == times.tolist()


def test_so_much_time_of_a_workload() -> None:
    table = sample_workload((QA,), duration_s=60.0, seed=1).table()
    assert table.rows == pytest.approx(600, abs=100)
    assert table.arrival_ns.max() < 60 * 10**9


def test_batches_are_bounded_by_requests_and_by_identities() -> None:
    table = structs.replace(QA, prompt_tokens=131_072, prefix_hit=0.99, rate_per_s=1000.0)
    rows = [batch.rows for batch in sample_workload((table,), requests=1500, seed=1).batches()]
    assert sum(rows) == 1500
    assert max(rows) <= 4_000_000 // (131_071 * 99 // 100 // 16)


@pytest.mark.parametrize(
    ("asked", "words"),
    [({}, "how many requests"), ({"requests": 0}, "0 requests"), ({"duration_s": -1.0}, "-1 seconds")],
)
def test_no_end_is_an_error(asked: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sample_workload((QA,), **asked)  # type: ignore[arg-type]


def test_the_shipped_cohorts_are_what_they_say() -> None:
    for name, share in (("short-qa", 0.5), ("reports", 0.1)):
        cohorts = read_cohorts(EXAMPLES / f"{name}.toml")
        workload = sample_workload(cohorts, requests=2048, seed=1)
        assert hit_share(workload) == pytest.approx(share, abs=0.01)
