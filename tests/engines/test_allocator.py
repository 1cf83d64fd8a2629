"""torch's caching allocator: what stays with tensors that are never freed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.engines.allocator import (
    LARGE_SEGMENT,
    MIN_BLOCK,
    MIN_LARGE,
    ROUND_LARGE,
    SMALL,
    SMALL_SEGMENT,
    Slack,
    allocation_slack,
)

MIB = 2**20
SIZES = st.one_of(st.integers(1, SMALL), st.integers(SMALL + 1, MIN_LARGE - 1), st.integers(MIN_LARGE, 2**32))
LIMITS = st.sampled_from([0, 20 * MIB, 64 * MIB])


@pytest.mark.parametrize(
    ("size", "stranded", "idle"),
    [
        (1, 511, SMALL_SEGMENT - 512),
        (512, 0, SMALL_SEGMENT - 512),
        (SMALL, 0, SMALL_SEGMENT - SMALL),
        (SMALL + 1, 511, LARGE_SEGMENT - SMALL - 512),
        (10 * MIB, 0, 0),
        (10 * MIB + 1, 511, 2 * MIB - 512),
        (11 * MIB, 1 * MIB, 0),
        (12 * MIB, 0, 0),
    ],
)
def test_one_tensor(size: int, stranded: int, idle: int) -> None:
    assert allocation_slack((size,), 1) == Slack(stranded_bytes=stranded, idle_bytes=idle)


def test_a_rest_of_more_than_one_mib_serves_the_next_tensor() -> None:
    first = 10 * MIB + 512
    assert allocation_slack((first,), 1).idle_bytes == 2 * MIB - 512
    both = allocation_slack((first, 3 * MIB // 2), 1)
    assert both == Slack(stranded_bytes=MIB // 2 - 512, idle_bytes=0)


def test_small_tensors_share_segments() -> None:
    assert allocation_slack((MIB // 2,), 4) == Slack(stranded_bytes=0, idle_bytes=0)
    assert allocation_slack((MIB // 2,), 5) == Slack(stranded_bytes=0, idle_bytes=3 * MIB // 2)


def test_above_the_limit_a_segment_is_not_split() -> None:
    size = 20 * MIB + 512
    assert allocation_slack((size,), 1) == Slack(stranded_bytes=0, idle_bytes=2 * MIB - 512)
    limited = allocation_slack((size,), 1, 20 * MIB)
    assert limited == Slack(stranded_bytes=2 * MIB - 512, idle_bytes=0)


@given(st.lists(SIZES, max_size=12), st.integers(0, 4), LIMITS)
def test_what_is_stranded_is_bounded_by_a_rounding_for_each_tensor(
    sizes: list[int], repeats: int, limit: int
) -> None:
    found = allocation_slack(tuple(sizes), repeats, limit)
    most = sum(MIN_BLOCK - 1 if size <= SMALL - MIN_BLOCK else ROUND_LARGE for size in sizes) * repeats
    assert 0 <= found.stranded_bytes <= most
    assert found.idle_bytes >= 0


@given(st.lists(SIZES, min_size=1, max_size=12), st.integers(1, 4), LIMITS)
def test_segments_are_whole(sizes: list[int], repeats: int, limit: int) -> None:
    """What was asked for and the slack make segments of 2 MiB or multiples of it."""
    found = allocation_slack(tuple(sizes), repeats, limit)
    reserved = sum(sizes) * repeats + found.stranded_bytes + found.idle_bytes
    assert reserved % SMALL_SEGMENT == 0
    assert reserved > 0


@given(st.lists(SIZES, max_size=6), LIMITS)
def test_nothing_is_taken_for_nothing(sizes: list[int], limit: int) -> None:
    assert allocation_slack((), 3, limit) == allocation_slack(tuple(sizes), 0, limit)
    assert allocation_slack((), 0) == Slack(stranded_bytes=0, idle_bytes=0)


@given(st.lists(SIZES, max_size=6), st.integers(0, 3), LIMITS)
def test_repeating_is_writing_out(sizes: list[int], repeats: int, limit: int) -> None:
    assert allocation_slack(tuple(sizes), repeats, limit) == allocation_slack(
        tuple(sizes * repeats), 1, limit
    )
