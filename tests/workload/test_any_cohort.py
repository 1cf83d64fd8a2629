"""What holds of a workload whatever the cohorts it was sampled from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.workload.agents import Agent, Branches, Retrieval
from vramledger.workload.cohort import Cohort
from vramledger.workload.cohort_file import toml_of
from vramledger.workload.columnar.fitting import fit_cohorts
from vramledger.workload.columnar.sampling import sample_workload
from vramledger.workload.quantiles import Quantiles

SHARES = st.sampled_from([0.0, 0.05, 0.5, 1.0])
RETRIEVALS = st.builds(
    Retrieval,
    top_k=st.integers(1, 5),
    chunk_tokens=st.integers(1, 300),
    corpus_chunks=st.integers(5, 60),
    skew=st.sampled_from([0.0, 1.0, 3.0]),
    order=st.sampled_from(["relevance", "sorted"]),
    place=st.sampled_from(["front", "end"]),
    probability=SHARES,
)


@st.composite
def quantiles(draw: st.DrawFn, least: int = 1, most: int = 3000) -> Quantiles:
    p50, p95, p99 = sorted(draw(st.lists(st.integers(least, most), min_size=3, max_size=3)))
    return Quantiles(
        p50=p50, p95=p95, p99=p99, min=draw(st.integers(least, p50)), max=draw(st.integers(p99, 2 * p99))
    )


@st.composite
def agents(draw: st.DrawFn) -> Agent:
    return Agent(
        turns=draw(quantiles(1, 12)),
        tool_tokens=draw(st.integers(0, 60)),
        system_tokens=draw(st.integers(0, 30)),
        growth_tokens=draw(st.none() | quantiles()),
        first_tokens=draw(st.none() | quantiles()),
        keeps_output=draw(st.booleans()),
        edit_probability=draw(SHARES),
        edit_tokens=draw(quantiles(1, 5000)),
        compact_probability=draw(SHARES),
        compact_to=draw(SHARES),
        revision_every_s=draw(st.none() | st.floats(0.01, 1000)),
        revision_every_turns=draw(st.none() | st.integers(1, 5)),
        tool_wait_ms=draw(st.none() | quantiles()),
        branches=draw(
            st.none()
            | st.builds(
                Branches,
                count=st.integers(2, 4),
                probability=SHARES,
                kind=st.sampled_from(["samples", "forks"]),
                prompt_tokens=st.integers(1, 200),
            )
        ),
    )


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[Cohort, ...]:
    made = []
    for name in draw(st.sampled_from(["a", "ab", "abc"])):
        agent = draw(st.none() | agents())
        retrieval = draw(st.none() | RETRIEVALS)
        more: dict[str, Any] = {} if agent else {"prefix_tokens": draw(st.none() | st.integers(1, 4000))}
        if not agent and not retrieval and more["prefix_tokens"] is None:
            more["prefix_hit"] = draw(st.none() | SHARES)
        comes: dict[str, Any] = draw(
            st.sampled_from([{"rate_per_s": 0.5}, {"rate_per_s": 20.0}, {"concurrency": 3}])
        )
        made.append(
            Cohort(
                name=name,
                tenant=draw(st.sampled_from(["", "t"])),
                prompt_tokens=draw(quantiles(least=100)),
                output_tokens=draw(quantiles(1, 500)),
                burstiness=draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])),
                max_output_tokens=draw(st.sampled_from([None, "output", 50])),
                prefixes=draw(st.integers(1, 4)),
                prefix_skew=draw(st.sampled_from([0.0, 1.5])),
                cancel_probability=draw(SHARES),
                cancel_after_ms=Quantiles(p50=5, p95=50, p99=500),
                retrieval=retrieval,
                agent=agent,
                **comes,
                **more,
            )
        )
    return tuple(made)


@settings(deadline=None, max_examples=10)
@given(cohorts(), st.integers(1, 60), st.integers(0, 3), st.sampled_from([1, 16, 64]))
def test_every_workload_is_whole_in_order_and_the_same_again(
    asked: tuple[Cohort, ...], requests: int, seed: int, block_tokens: int
) -> None:
    workload = sample_workload(asked, requests=requests, seed=seed, block_tokens=block_tokens)
    pieces = sample_workload(
        asked, requests=requests, seed=seed, block_tokens=block_tokens, window_requests=7
    )
    table, again = workload.table(), pieces.table()
    assert table.rows == requests
    assert all(np.array_equal(one, other) for one, other in zip(table, again, strict=True))
    assert (np.diff(table.arrival_ns) >= 0).all()
    assert table.arrival_ns.min() >= 0
    assert (table.parent < np.arange(requests)).all()
    assert (table.prompt_tokens >= 1).all()
    assert (table.output_tokens >= 1).all()
    assert ((table.max_output_tokens < 0) | (table.max_output_tokens >= table.output_tokens)).all()
    assert (table.tenant < len(workload.header.tenants)).all()
    assert (table.boundary < len(workload.header.boundaries)).all()
    named = np.diff(table.block_offsets)
    assert (named >= 0).all()
    assert (named <= (table.prompt_tokens + table.output_tokens) // block_tokens).all()
    # An engine names its blocks after an identity and a place in it, in 64 bits.
    assert 0 <= table.block_ids.min(initial=0) <= table.block_ids.max(initial=0) < 2**63 // block_tokens


@settings(deadline=None, max_examples=10)
@given(cohorts(), st.integers(30, 60))
def test_identities_are_chained(asked: tuple[Cohort, ...], requests: int) -> None:
    """An identity stands for all that is before it, so whatever names it names the same before it, at the same place."""
    before: dict[int, tuple[int, int]] = {}
    for request in sample_workload(asked, requests=requests, seed=1).requests():
        assert len(set(request.blocks)) == len(request.blocks)
        for place, block in enumerate(request.blocks):
            previous = request.blocks[place - 1] if place else -1
            assert before.setdefault(block, (place, previous)) == (place, previous)


@settings(deadline=None, max_examples=10)
@given(cohorts(), st.integers(2, 80))
def test_whatever_was_sampled_can_be_fitted_and_sampled_again(
    asked: tuple[Cohort, ...], requests: int
) -> None:
    fitted = fit_cohorts(sample_workload(asked, requests=requests, seed=1))
    assert toml_of(fitted)
    if all(cohort.rate_per_s is not None for cohort in fitted):
        assert sample_workload(fitted, requests=50, seed=1).table().rows == 50
    else:
        assert {cohort.weight is None for cohort in fitted} == {False}


def test_a_sample_needs_a_seed_and_nothing_else() -> None:
    cohort = Cohort(name="a", prompt_tokens=5, output_tokens=5, rate_per_s=1.0)
    assert sample_workload((cohort,), requests=3).table().prompt_tokens.tolist() == [5, 5, 5]
    with pytest.raises(TypeError):
        sample_workload((cohort,), 3)  # type: ignore[call-arg]
