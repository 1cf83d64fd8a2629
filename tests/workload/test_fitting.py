from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from vramledger.errors import InputError
from vramledger.workload.cohort import Cohort
from vramledger.workload.columnar.cells import between_quantiles, cells_of
from vramledger.workload.columnar.first_use import FirstUse
from vramledger.workload.columnar.fitting import fit_cohorts
from vramledger.workload.columnar.inferred_turns import inferred_conversations
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columnar.sampling import sample_workload
from vramledger.workload.columns import RequestColumns, Workload, columns_of, columns_with
from vramledger.workload.quantiles import Quantiles
from vramledger.workload.request import WorkloadHeader
from workload.prefix_oracle import found_tokens, hit_share

TRACES = Path(__file__).parents[2] / "data" / "traces"
AZURE = TRACES / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv.gz"
AGENTIC = TRACES / "agentic-coding-claude-code" / "sessions.first-30-small.jsonl.gz"
CHAT = TRACES / "mooncake-fast25" / "conversation_trace.first-300000ms.jsonl.gz"
PLACES = (0.5, 0.95, 0.99)


def rate_and_cv(table: RequestColumns) -> tuple[float, float]:
    gaps = np.diff(table.arrival_ns)
    return 1e9 / float(gaps.mean()), float(gaps.std() / gaps.mean())


def reused(workload: Workload) -> float:
    """The share of the prompts' tokens that first uses leave, where the book's cache would take long."""
    block_tokens = workload.header.block_tokens or 1
    first_use = FirstUse(block_tokens)
    found = sum(int(first_use.found(batch)[0].sum()) for batch in workload.batches())
    return found * block_tokens / int(workload.table().prompt_tokens.sum())


def test_a_chat_services_quantiles_rate_and_bursts_come_back() -> None:
    """Sampled five times as long as the trace, so that 2 % is about the fit and not about the sample."""
    trace = read_workload(AZURE)
    cohorts = fit_cohorts(trace)
    whole, sampled = (
        trace.table(),
        sample_workload(cohorts, requests=100_000, seed=1, stratified=True).table(),
    )
    for name in ("prompt_tokens", "output_tokens"):
        wanted, got = (np.quantile(getattr(one, name), PLACES) for one in (whole, sampled))
        assert got == pytest.approx(wanted, rel=0.02)
        assert getattr(sampled, name).mean() == pytest.approx(getattr(whole, name).mean(), rel=0.02)
    assert rate_and_cv(sampled) == pytest.approx(rate_and_cv(whole), rel=0.02)
    related = [np.corrcoef(one.prompt_tokens, one.output_tokens)[0, 1] for one in (whole, sampled)]
    assert related[1] == pytest.approx(related[0], abs=0.05)


def test_one_cohort_keeps_the_quantiles_too() -> None:
    whole = read_workload(AZURE).table()
    (only,) = fit_cohorts(read_workload(AZURE), count=1)
    for quantiles, values in ((only.prompts, whole.prompt_tokens), (only.outputs, whole.output_tokens)):
        assert [quantiles.p50, quantiles.p95, quantiles.p99] == np.quantile(
            values, PLACES, method="inverted_cdf"
        ).tolist()
        assert (quantiles.min, quantiles.max) == (values.min(), values.max())


def test_coding_agents_reuse_as_much_as_in_their_trace() -> None:
    """Of the whole published trace 96.6 % of the prompts' tokens; these short conversations find less."""
    trace = read_workload(AGENTIC)
    (agents,) = fit_cohorts(trace)
    assert agents.agent is not None
    table = trace.table()
    turns = np.unique(table.conversation, return_counts=True)[1]
    assert agents.agent.turns.p50 == np.quantile(turns, 0.5, method="inverted_cdf")
    sampled = sample_workload((agents,), requests=1000, seed=2, block_tokens=64)
    assert reused(sampled) == pytest.approx(reused(trace), abs=0.02)


def test_turns_of_a_chat_without_conversations_are_told_by_their_blocks() -> None:
    trace = read_workload(CHAT)
    cohorts = fit_cohorts(trace)
    assert cohorts[0].agent is not None
    sampled = sample_workload(cohorts, requests=2000, seed=1, block_tokens=512)
    assert hit_share(sampled) == pytest.approx(hit_share(trace), abs=0.06)


def test_tenants_come_back_with_their_rates_lengths_and_hits() -> None:
    chat = Cohort(
        name="chat",
        tenant="web",
        prompt_tokens=Quantiles(p50=1000, p95=3000, p99=6000),
        output_tokens=Quantiles(p50=100, p95=300, p99=600),
        rate_per_s=6.0,
        burstiness=2.0,
        prefix_hit=0.5,
        prefixes=5,
        max_output_tokens=2048,
        priority=3,
    )
    batch = structs.replace(
        chat, name="batch", tenant="night", rate_per_s=2.0, burstiness=0.5, prefix_hit=0.9, prefixes=2
    )
    fitted = fit_cohorts(sample_workload((chat, batch), requests=20_000, seed=1), count=2)
    assert [cohort.tenant for cohort in fitted] == ["web", "night"]
    for found, wanted in zip(fitted, (chat, batch), strict=True):
        assert found.rate_per_s == pytest.approx(wanted.rate_per_s, rel=0.05)
        assert found.burstiness == pytest.approx(wanted.burstiness, rel=0.1)
        assert found.hit_share == pytest.approx(wanted.hit_share, abs=0.01)
        assert found.prompts.p50 == pytest.approx(wanted.prompts.p50, rel=0.05)
        assert found.outputs.p95 == pytest.approx(wanted.outputs.p95, rel=0.1)
        assert (found.max_output_tokens, found.priority, found.agent) == (2048, 3, None)


def test_many_small_tenants_are_one() -> None:
    count = 300
    table = columns_with(
        arrival_ns=np.arange(count) * 10**9,
        prompt_tokens=np.full(count, 9),
        output_tokens=np.full(count, 2),
        tenant=np.concatenate([np.zeros(100), np.arange(200) % 100 + 1]),
    )
    header = WorkloadHeader(name="t", source="made", tenants=tuple(f"t{number}" for number in range(101)))
    fitted = fit_cohorts(Workload.of(header, table), count=1)
    assert len(fitted) == 64
    assert (fitted[0].tenant, fitted[-1].tenant) == ("t0", "others")
    assert fitted[0].prompt_tokens == 9
    assert sum(cohort.rate_per_s or 0 for cohort in fitted) == pytest.approx(1.0, rel=0.01)


def test_requests_without_times_have_weights() -> None:
    table = columns_with(arrival_ns=np.zeros(30), prompt_tokens=np.full(30, 5), output_tokens=np.full(30, 2))
    (only,) = fit_cohorts(Workload.of(WorkloadHeader(name="t", source="made"), table))
    assert (only.weight, only.rate_per_s) == (30.0, None)


def test_no_requests_are_no_cohorts() -> None:
    with pytest.raises(InputError, match="no requests"):
        fit_cohorts(Workload.of(WorkloadHeader(name="empty", source="made"), columns_of(())))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(1, 12))
def test_cells_are_few_and_lie_between_quantiles(values: list[int], count: int) -> None:
    lengths = np.array(values)
    parts = between_quantiles(lengths)
    for place in PLACES:
        edge = np.quantile(lengths, place, method="inverted_cdf")
        assert parts[lengths <= edge].max() < parts[lengths > edge].min(initial=4)
    cells = cells_of([parts, between_quantiles(lengths[::-1])], count)
    assert sorted(set(cells.tolist())) == list(range(int(cells.max()) + 1))
    assert cells.max() < count


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 4)), max_size=40))
def test_first_uses_are_those_of_a_cache_by_the_book(asked: list[tuple[int, int, int]]) -> None:
    """Texts are chains: block `i` of text `t` is 2**28 * (t % 2) + 1000 * t + i, so that both tables are met."""
    from vramledger.workload.request import Request

    requests = [
        Request(
            arrival_ns=0,
            prompt_tokens=4 * blocks + 1,
            output_tokens=1,
            boundary=boundary,
            blocks=tuple(2**28 * (blocks % 2) + 1000 * (blocks % 3) + place for place in range(blocks)),
        )
        for boundary, blocks, _ in asked
    ]
    workload = Workload.of(WorkloadHeader(name="t", source="made", block_tokens=4), columns_of(requests))
    first_use = FirstUse(4)
    batches = [columns_of(requests[:5]), columns_of(requests[5:])]
    found = np.concatenate([first_use.found(batch)[0] for batch in batches])
    assert int(found.sum()) * 4 == found_tokens(workload)[0]


def test_a_prompt_that_begins_with_a_whole_earlier_one_follows_it() -> None:
    found = np.array([0, 2, 4, 1, 0, 3, 3, 3])
    owners = np.array([-1, 0, 1, 0, -1, 4, 4, 4])
    prompts = np.array([9, 18, 30, 50, 13, 20, 22, 24])
    told = inferred_conversations(found, owners, prompts, 4)
    assert told[:4].tolist() == [0, 0, 0, -1]  # the fourth shares one block of two
    assert told[4:].tolist() == [-1, -1, -1, -1]  # three begin with the fifth's: a text
