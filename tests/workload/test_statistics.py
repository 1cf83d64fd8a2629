"""Numbers of traces: those that READMEs state, and those of a plain count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columnar.statistics import describe
from vramledger.workload.columns import RequestColumns, Workload, columns_of
from vramledger.workload.request import Request, WorkloadHeader
from workload.test_reading import AGENTIC, AZURE, MEASURED, MOONCAKE


def workload_of(requests: Sequence[Request], sizes: Sequence[int] = ()) -> Workload:
    """Requests in batches of such sizes, the rest in one."""
    header = WorkloadHeader(name="", source="", block_tokens=16)
    cuts = np.cumsum([0, *sizes]).tolist()
    pieces = [
        columns_of(requests[start:stop]) for start, stop in zip(cuts, [*cuts[1:], len(requests)], strict=True)
    ]
    return Workload(header, lambda: iter([piece for piece in pieces if piece.rows]))


def test_azure_is_what_its_readme_says() -> None:
    facts = describe(read_workload(AZURE))
    assert (facts.requests, round(facts.rate_per_s or 0, 3), round(facts.arrival_cv or 0, 3)) == (
        19_366,
        5.530,
        1.094,
    )
    prompt, output = facts.prompt_tokens, facts.output_tokens
    assert (round(prompt.mean, 1), prompt.p50, prompt.p95, prompt.p99, prompt.max) == (
        1154.7,
        1020,
        4083,
        4142,
        14_050,
    )
    assert (round(output.mean, 1), output.p50, output.p90, output.p95, output.p99) == (
        211.1,
        129,
        424,
        451,
        601,
    )
    assert facts.reuse is None


def test_a_measured_run_reuses_what_its_readme_says() -> None:
    reuse = describe(read_workload(MEASURED)).reuse
    assert reuse is not None
    assert (reuse.reusable_blocks, reuse.prompt_blocks) == (1_220, 15_942)


@pytest.mark.parametrize("path", [MOONCAKE, AGENTIC, MEASURED])
def test_reuse_is_that_of_a_plain_count(path: object) -> None:
    workload = read_workload(str(path), link_turns=False)
    assert workload.header.block_tokens is not None
    assert counted_reuse(workload.requests(), workload.header.block_tokens) == reuse_of(workload)


def counted_reuse(requests: object, block_tokens: int) -> tuple[int, int, int]:
    """Full blocks of a prompt count whether they are named or not, and a last one that is not full where it is."""
    seen: set[tuple[int, int]] = set()
    hits = blocks = with_hit = named = 0
    for request in requests:  # type: ignore[attr-defined]
        asked = request.blocks[: -(-request.prompt_tokens // block_tokens)]
        run = 0
        while run < len(asked) and (request.boundary, asked[run]) in seen:
            run += 1
        hits, with_hit, named = hits + run, with_hit + bool(run), named + len(asked)
        blocks += max(len(asked), request.prompt_tokens // block_tokens)
        seen.update((request.boundary, block) for block in request.blocks)
    return (hits, blocks, with_hit) if named else (0, 0, 0)


def reuse_of(workload: Workload) -> tuple[int, int, int]:
    reuse = describe(workload).reuse
    if reuse is None:
        return 0, 0, 0
    return reuse.reusable_blocks, reuse.prompt_blocks, reuse.requests_with_a_hit


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    ids = st.integers(0, 9) | st.integers(2**40, 2**40 + 3)
    return [
        Request(
            arrival_ns=place,
            prompt_tokens=draw(st.integers(1, 80)),
            output_tokens=1,
            blocks=tuple(draw(st.lists(ids, max_size=6))),
            boundary=draw(st.integers(0, 1)),
        )
        for place in range(draw(st.integers(1, 8)))
    ]


@settings(max_examples=60)
@given(rows=requests(), first=st.integers(0, 8))
def test_reuse_does_not_depend_on_batches(rows: list[Request], first: int) -> None:
    workload = workload_of(rows, [min(first, len(rows))])
    assert reuse_of(workload) == counted_reuse(rows, 16)


@settings(max_examples=30)
@given(gaps=st.lists(st.integers(0, 200 * 10**9), min_size=2, max_size=30), first=st.integers(0, 31))
def test_arrivals_do_not_depend_on_batches(gaps: list[int], first: int) -> None:
    times = np.cumsum([0, *gaps])
    rows = [Request(arrival_ns=int(at), prompt_tokens=1, output_tokens=1) for at in times]
    facts = describe(workload_of(rows, [min(first, len(rows))]))
    assert facts.span_ns == sum(gaps)
    if sum(gaps):
        wanted = float(np.std(np.array(gaps) / 1e9) / np.mean(np.array(gaps) / 1e9))
        assert facts.arrival_cv == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    if facts.busiest_minute is not None:
        busiest = np.bincount((times - times[0]) // (60 * 10**9)).max()
        assert facts.busiest_minute == pytest.approx(busiest / (len(rows) * 60e9 / sum(gaps)))


def test_quantiles_are_values_that_came() -> None:
    rows = [Request(arrival_ns=0, prompt_tokens=tokens, output_tokens=1) for tokens in range(1, 101)]
    spread = describe(workload_of(rows, [37])).prompt_tokens
    assert (spread.p50, spread.p90, spread.p95, spread.p99, spread.max, spread.total) == (
        50,
        90,
        95,
        99,
        100,
        5050,
    )


def test_columns_stay_apart() -> None:
    facts = describe(read_workload(AGENTIC))
    columns: RequestColumns = read_workload(AGENTIC).table()
    assert facts.conversations == 30
    assert facts.following == int((columns.parent >= 0).sum())
    assert facts.pause_ns is not None
    assert facts.pause_ns.total == int(columns.pause_ns[columns.parent >= 0].sum())
