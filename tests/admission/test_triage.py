"""Moore's rule: as few late as can be, and those with the most work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.admission.triage import Rate, Triage

S = 1_000_000_000_000


def triage(rows: list[tuple[int, int]]) -> Triage:
    """Of (work, latest start), in their order."""
    made = Triage()
    for place, (work, start_ps) in enumerate(rows):
        made.add(place, place=place, work=work, latest_start_ps=start_ps)
    return made


def taken_out(rows: list[tuple[int, int]], blocks: float = 1.0) -> list[int]:
    made, out = triage(rows), []
    while (found := made.take_out(0, blocks)) is not None:
        assert found[1] == rows[found[0]][0]
        out.append(found[0])
    assert len(made) == len(rows) - len(out)
    return out


def kept_in_order(rows: list[tuple[int, int]]) -> int:
    """How many are in time when each that comes too late is left out, in order of arrival."""
    before = kept = 0
    for work, start_ps in rows:
        if before <= start_ps:
            before += work
            kept += 1
    return kept


def test_nobody_is_put_behind_while_all_will_be_in_time() -> None:
    assert taken_out([(10, 0), (10, 10), (10, 20)]) == []


def test_the_one_with_the_most_work_up_to_the_first_that_would_be_late_goes() -> None:
    # The third would start at 60 and must by 30: without the second it starts at 10.
    assert taken_out([(10, 30), (50, 30), (5, 30), (500, 100)]) == [1]
    # A rate of two blocks serves the same work in half the time.
    assert taken_out([(10, 30), (50, 30), (5, 30), (500, 100)], blocks=2.0) == []


def test_one_that_none_of_the_others_could_save_goes_itself() -> None:
    assert taken_out([(10, 30), (15, 30), (5, -1)]) == [2]


def test_who_left_counts_no_more() -> None:
    made = triage([(50, 0), (5, 30)])
    made.remove(0)
    made.remove(0)
    assert made.take_out(0, 1.0) is None
    assert len(made) == 1


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 200)), max_size=30))
def test_all_that_stay_are_in_time_and_no_fewer_than_in_order_of_arrival(rows: list[tuple[int, int]]) -> None:
    out = set(taken_out(rows))
    before = 0
    for place, (work, start_ps) in enumerate(rows):
        if place not in out:
            assert before <= start_ps
            before += work
    assert len(rows) - len(out) >= kept_in_order(rows)


def test_the_rate_is_the_pools_until_it_was_seen_and_counts_only_while_somebody_waits() -> None:
    rate = Rate(100)
    assert rate.blocks == 100
    rate.at(0, is_waited=True)
    rate.let_in(50 * 10 * S)
    rate.at(10 * S, is_waited=False)
    assert rate.blocks == 75
    rate.at(500 * S, is_waited=True)
    rate.at(501 * S, is_waited=True)
    assert abs(rate.blocks - 1500 / 21) < 1e-6
    # Ever longer ago counts ever less.
    for second in range(501, 900):
        rate.let_in(20 * S)
        rate.at(second * S, is_waited=True)
    assert abs(rate.blocks - 20) < 3
