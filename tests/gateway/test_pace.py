"""When there may be room, by what came back of late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.gateway.pace import ReleasePace

NS_PER_S = 1_000_000_000
NIGHT_NS = 12 * 3600 * NS_PER_S


def test_the_pace_of_blocks() -> None:
    pace = ReleasePace()
    pace.at(0, is_busy=True, is_waited=False)
    pace.released(10, NS_PER_S)
    assert pace.wait_ms(10, NS_PER_S) is None
    pace.released(30, 3 * NS_PER_S)
    assert pace.wait_ms(20, 3 * NS_PER_S) == 1000


def test_a_quiet_night_is_not_a_slow_engine() -> None:
    pace = ReleasePace()
    pace.at(0, is_busy=True, is_waited=False)
    for second in (1, 2, 3):
        pace.released(10, second * NS_PER_S)
    evening_ms = pace.wait_ms(100, 3 * NS_PER_S)
    pace.at(3 * NS_PER_S, is_busy=False, is_waited=False)
    assert pace.wait_ms(100, NIGHT_NS) == evening_ms
    pace.at(NIGHT_NS, is_busy=True, is_waited=False)
    assert pace.wait_ms(100, NIGHT_NS) == evening_ms


def test_what_came_back_while_somebody_waited_goes_before_what_did_while_there_was_room() -> None:
    pace = ReleasePace()
    pace.at(0, is_busy=True, is_waited=False)
    for second in range(1, 11):  # one client at a time: 1 block a second
        pace.released(1, second * NS_PER_S)
    pace.at(10 * NS_PER_S, is_busy=True, is_waited=True)
    assert pace.wait_ms(100, 10 * NS_PER_S) == 90_000
    for tenth in range(1, 31):  # all it can: 20 blocks a second
        pace.released(2, 10 * NS_PER_S + tenth * NS_PER_S // 10)
    assert 4_000 < (pace.wait_ms(100, 13 * NS_PER_S) or 0) < 6_000


@given(
    st.lists(
        st.tuples(st.integers(0, 10**11), st.integers(0, 1000), st.booleans(), st.booleans()), max_size=80
    )
)
def test_a_wait_is_never_below_a_millisecond_and_longer_for_more(
    steps: list[tuple[int, int, bool, bool]],
) -> None:
    pace, now_ns = ReleasePace(8), 0
    for later_ns, count, is_busy, is_waited in steps:
        now_ns += later_ns
        pace.released(count, now_ns)
        pace.at(now_ns, is_busy=is_busy, is_waited=is_waited)
        little, much = pace.wait_ms(1, now_ns), pace.wait_ms(1000, now_ns)
        assert (little is None) is (much is None)
        if little is not None and much is not None:
            assert 1 <= little <= much
