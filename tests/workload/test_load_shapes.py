"""The same requests sent otherwise: rates, bursts and outages by count, nobody lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.workload.columnar.load_shapes import (
    after_outage,
    faster,
    per_s,
    rows_from,
    span_ns,
    starts,
    with_burst,
    with_outputs,
)
from vramledger.workload.columns import columns_of
from vramledger.workload.request import Request

S = 10**9


def every_second(count: int) -> list[Request]:
    return [
        Request(
            arrival_ns=number * S, prompt_tokens=10, output_tokens=4, blocks=(number, number + 1)[: number % 3],
            parent=number - 2 if number % 4 == 3 else None,
        )
        for number in range(count)
    ]  # fmt: skip


def test_a_rate_and_twice_the_rate() -> None:
    table = columns_of(every_second(101))
    assert (span_ns(table), starts(table)) == (100 * S, 76)
    # 76 conversations in 100 s, of 101 requests.
    assert per_s(table) == pytest.approx(75 / 100 * 101 / 76)
    assert per_s(faster(table, 2.0)) == pytest.approx(2 * per_s(table))
    alone = columns_of([row for row in every_second(101) if row.parent is None])
    assert per_s(alone) == pytest.approx(75 / 100)
    assert faster(table, 2.0).prompt_tokens is table.prompt_tokens


@given(st.floats(0.01, 100), st.lists(st.integers(0, 10**13), min_size=1, max_size=30))
def test_order_stays_at_every_rate(factor: float, times: list[int]) -> None:
    table = columns_of([Request(arrival_ns=at, prompt_tokens=1, output_tokens=1) for at in sorted(times)])
    scaled = faster(table, factor).arrival_ns
    assert scaled[0] == 0
    assert (np.diff(scaled) >= 0).all()
    burst = with_burst(table, at_ns=10**12, lasts_ns=10**12, factor=max(factor, 1.0)).arrival_ns
    assert (np.diff(burst) >= 0).all()
    assert len(burst) == len(times)


def test_a_burst_is_as_long_and_as_high_as_asked() -> None:
    table = columns_of(every_second(100))
    burst = with_burst(table, at_ns=20 * S, lasts_ns=10 * S, factor=3.0).arrival_ns
    inside = (burst >= 20 * S) & (burst < 30 * S)
    assert inside.sum() == 30
    assert burst[-1] == 99 * S - 20 * S
    assert (burst[:20] == table.arrival_ns[:20]).all()


def test_after_an_outage_everyone_comes_at_once() -> None:
    requests = every_second(100)
    table, herd = after_outage(columns_of(requests), at_ns=50 * S, down_ns=10 * S, in_flight_ns=5 * S)
    assert table.rows == 55
    # Of 16 requests four are later turns, which come when the turns before them have ended.
    assert herd == 12
    assert (table.arrival_ns == 0).sum() == 16
    assert table.arrival_ns[-1] == 39 * S
    # Number 47 (2 here) had parent 45 (0 here); number 45's blocks are its own still.
    assert [row.parent for row in table.requests()][2] == 0
    assert [row.blocks for row in table.requests()] == [row.blocks for row in requests[45:]]


def test_a_part_of_a_workload_knows_no_parents_outside() -> None:
    part = rows_from(columns_of(every_second(20)), 3, 5)
    assert part.rows == 5
    assert [row.parent for row in part.requests()] == [None, None, None, None, 2]
    assert [row.blocks for row in part.requests()] == [row.blocks for row in every_second(8)[3:]]


def test_longer_answers() -> None:
    table = columns_of([Request(arrival_ns=0, prompt_tokens=1, output_tokens=8, max_output_tokens=10),
                        Request(arrival_ns=1, prompt_tokens=1, output_tokens=1)])  # fmt: skip
    more = with_outputs(table, 1.25)
    assert more.output_tokens.tolist() == [10, 1]
    assert more.max_output_tokens.tolist() == [12, -1]
