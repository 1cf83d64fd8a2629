"""A run's figures: percentiles against numpy, sketches within their stated error, goodput over what was offered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.simulation.measures import RELATIVE_ERROR, Sketch, Summariser, Tenants, is_good, summary_of
from vramledger.simulation.outcome import PoolSample, RequestOutcome, Status
from vramledger.simulation.outcome_columns import OutcomeColumns, outcome_columns
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings, Slo
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.summary import PERCENTS, capacity_tokens, pool_summary, quantiles_of
from vramledger.workload.columns import Workload, columns_of, columns_with
from vramledger.workload.request import Request, WorkloadHeader

S = 10**12
VALUES = st.lists(st.integers(0, 2**62), min_size=1, max_size=60)


def outcome(number: int, **changes: int | Status) -> RequestOutcome:
    fields: dict[str, int | Status] = {
        "number": number, "replica": 0, "status": Status.FINISHED, "sent_ps": number * S, "admitted_ps": number * S,
        "first_token_ps": number * S + S, "end_ps": number * S + 2 * S, "prompt_tokens": 100, "output_tokens": 11,
    }  # fmt: skip
    return RequestOutcome(**(fields | changes))  # type: ignore[arg-type]


@given(VALUES, VALUES)
def test_percentiles_are_numpys_nearest_rank(first: list[int], second: list[int]) -> None:
    sketch = Sketch()
    sketch.add(np.array(first, dtype=np.int64))
    sketch.add(np.array(second, dtype=np.int64))
    found, both = sketch.quantiles(), first + second
    expected = np.percentile(np.array(both, dtype=object), PERCENTS, method="inverted_cdf").tolist()
    assert [found.p50, found.p90, found.p95, found.p99] == expected
    assert (found.count, found.max, found.relative_error) == (len(both), max(both), 0.0)
    assert found.mean == sum(both) / len(both)
    assert found == quantiles_of(both)


@settings(max_examples=30)
@given(VALUES, VALUES)
def test_a_sketch_keeps_its_stated_error(first: list[int], second: list[int]) -> None:
    sketch = Sketch(exact=0)
    for values in (first, second):
        sketch.add(np.array(values, dtype=np.int64))
    found, exact = sketch.quantiles(), quantiles_of(first + second)
    assert found.relative_error == RELATIVE_ERROR
    assert (found.mean, found.max, found.count) == (exact.mean, exact.max, exact.count)
    for name in ("p50", "p90", "p95", "p99"):
        assert abs(getattr(found, name) - getattr(exact, name)) <= RELATIVE_ERROR * getattr(exact, name) + 1


def test_goodput_is_over_what_was_offered() -> None:
    rows = [
        outcome(0),
        outcome(1, first_token_ps=5 * S, end_ps=6 * S),
        outcome(2, end_ps=24 * S),
        outcome(3, status=Status.NEVER_FITS, admitted_ps=-1, first_token_ps=-1, end_ps=3 * S),
        outcome(4, status=Status.CANCELLED, end_ps=5 * S),
        outcome(5, status=Status.CANCELLED, admitted_ps=-1, first_token_ps=-1, end_ps=8 * S),
        outcome(6, status=Status.UNFINISHED, first_token_ps=-1, end_ps=-1),
        outcome(7, status=Status.UNFINISHED, sent_ps=-1, admitted_ps=-1, first_token_ps=-1, end_ps=-1),
    ]
    slo = Slo(ttft_ms=2000, tpot_ms=500)
    columns = outcome_columns(rows)
    assert is_good(columns, slo).tolist() == [True, False, False, False, True, False, False, False]
    found = summary_of(columns, slo).all
    assert (found.offered, found.finished, found.good, found.goodput) == (8, 3, 2, 0.25)
    assert (found.missed_ttft, found.missed_tpot) == (5, 4)
    assert found.never_fits_numbers == (3,)
    assert found.ttft_ps.count == 4
    assert found.latency_ps.max == 22 * S
    assert found.offered_per_s == pytest.approx(7 / 6)
    assert found.output_tokens == 11 * 4
    assert summary_of(columns, Slo()).all.good == 5


def test_a_client_that_left_slow_tokens_is_not_served_well() -> None:
    left: dict[str, int | Status] = {"status": Status.CANCELLED, "output_tokens": 10}
    # Ten tokens since the first came: the eleventh was due by 5 s after it.
    rows = [outcome(0, end_ps=6 * S, **left), outcome(1, end_ps=7 * S + 1, **left)]
    rows.append(outcome(2, status=Status.CANCELLED, first_token_ps=-1, end_ps=3 * S, output_tokens=0))
    columns = outcome_columns(rows)
    assert is_good(columns, Slo(tpot_ms=500)).tolist() == [True, False, True]
    assert summary_of(columns, Slo(tpot_ms=500)).all.missed_tpot == 1


def test_time_to_each_token_leaves_the_first_out() -> None:
    found = summary_of(outcome_columns([outcome(0), outcome(1, output_tokens=1)]), Slo()).all
    assert (found.tpot_ps.count, found.tpot_ps.p50) == (1, S // 10)


def test_an_end_beyond_the_clock_is_refused() -> None:
    with pytest.raises(InputError, match="takes 107 days"):
        outcome_columns([outcome(0, end_ps=2**63)])


def test_batches_and_groups_add_up() -> None:
    columns = outcome_columns([outcome(number, output_tokens=number + 1) for number in range(10)])
    workload = Workload.of(
        WorkloadHeader(name="w", source="here", tenants=("chat", "batch")),
        columns_with(
            arrival_ns=np.arange(10), prompt_tokens=np.full(10, 100), tenant=np.arange(10) % 2, output_tokens=np.ones(10)
        ),
    )  # fmt: skip
    whole = summary_of(columns, Slo(tpot_ms=200), workload)
    made, tenants = Summariser(Slo(tpot_ms=200), workload.header.tenants), Tenants(workload)
    for start in range(0, 10, 3):
        part = OutcomeColumns(*(column[start : start + 3] for column in columns))
        made.add(part, tenants.next(len(part.number)))
    assert made.summary() == whole
    assert [group.name for group in whole.groups] == ["chat", "batch"]
    assert sum(group.good for group in whole.groups) == whole.all.good
    assert sum(group.output_tokens for group in whole.groups) == whole.all.output_tokens == 55


def test_sums_of_long_times_do_not_overflow() -> None:
    sketch = Sketch()
    sketch.add(np.full(1000, 2**62, dtype=np.int64))
    assert sketch.quantiles().mean == 2.0**62


def test_the_pool_over_time() -> None:
    layout = PoolLayout(num_blocks=101, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1)
    samples = [
        PoolSample(
            at_ps=step * S, replica=0, used_blocks=used, cached_blocks=100 - used, free_blocks=0, running=used // 10,
            waiting=0, logical_tokens=used * 16, physical_tokens=used * 12,
        )
        for step, used in enumerate([0, 50, 96, 100, 20])
    ]  # fmt: skip
    found = pool_summary(samples, layout)
    assert (found.capacity_tokens, found.usable_blocks) == (1600, 100)
    assert (found.active_tokens.p50, found.active_tokens.max) == (600, 1200)
    assert (found.first_full_ps, found.full_ps, found.peak_ps) == (2 * S, 2 * S, 3 * S)
    assert found.waste_tokens is not None
    assert found.waste_tokens.max == 400
    assert pool_summary([], layout).samples == 0


def test_tokens_of_a_pool_of_groups_are_those_of_its_sequences() -> None:
    groups = (
        BlockGroup(block_tokens=16),
        *[BlockGroup(kind=GroupKind.WINDOW, block_tokens=16, window_tokens=1024)] * 5,
        BlockGroup(kind=GroupKind.STATE, block_tokens=512, state_blocks=1),
    )
    asked = SimulationSettings(
        layout=PoolLayout(num_blocks=1000, groups=groups),
        scheduler=SchedulerSettings(max_num_seqs=8, max_num_batched_tokens=512, max_model_len=4096),
        step=StepModel(overhead_ps=S, floor_ps=0, token_ps=0, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("a test's own")),
    )  # fmt: skip
    requests = [Request(arrival_ns=0, prompt_tokens=100, output_tokens=21) for _ in range(2)]
    header = WorkloadHeader(name="two", source="this test")
    run, _ = simulate(Workload.of(header, columns_of(requests)), asked, how="reference")
    found = pool_summary(run.samples, asked.layout)
    assert found.used_blocks.max == 2 * (6 * 8 + 1)
    assert found.active_tokens.max == found.logical_tokens.max == 2 * 120


def test_a_pool_of_groups_has_room_for_tokens_that_all_full_groups_keep() -> None:
    full, window = (
        BlockGroup(block_tokens=16),
        BlockGroup(kind=GroupKind.WINDOW, block_tokens=16, window_tokens=64),
    )
    state = BlockGroup(kind=GroupKind.STATE, block_tokens=512, state_blocks=1)
    assert capacity_tokens(PoolLayout(num_blocks=100, groups=(full,))) == 1600
    assert capacity_tokens(PoolLayout(num_blocks=100, groups=(full, window, state))) == 1600
    assert capacity_tokens(PoolLayout(num_blocks=100, groups=(full, full))) == 800
    assert capacity_tokens(PoolLayout(num_blocks=100, groups=(state,))) == 51_200
