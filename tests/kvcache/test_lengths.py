"""Closed forms against counting, and what a window or a chunk keeps."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import FlagError
from vramledger.kvcache.lengths import POINTS, Lengths, Request, from_pairs, from_quantiles
from vramledger.kvcache.units import Kept

KEPT = st.one_of(
    st.builds(Kept), st.builds(Kept, window=st.integers(1, 40)), st.builds(Kept, chunk=st.integers(1, 40))
)


def blocks_of_kept_tokens(kept: Kept, length: int, unit: int) -> int:
    """Tokens one by one: a block counts as long as one of its tokens stays."""
    if kept.window:
        stay = [token for token in range(length) if token >= length - kept.window]
    elif kept.chunk:
        stay = [token for token in range(length) if token // kept.chunk == (length - 1) // kept.chunk]
    else:
        stay = list(range(length))
    return len({token // unit for token in stay})


@given(KEPT, st.integers(0, 200), st.integers(1, 33))
def test_units_are_the_blocks_that_hold_a_token(kept: Kept, length: int, unit: int) -> None:
    assert kept.units(length, unit) == blocks_of_kept_tokens(kept, length, unit)
    assert kept.tokens(length) == blocks_of_kept_tokens(kept, length, 1)
    assert kept.tokens(length) <= kept.most_tokens(length)


@given(KEPT, st.integers(0, 200), st.integers(1, 33))
def test_sums_are_sums(kept: Kept, length: int, unit: int) -> None:
    assert kept.units_upto(length, unit) == sum(kept.units(n, unit) for n in range(1, length + 1))
    assert kept.tokens_upto(length) == sum(kept.tokens(n) for n in range(1, length + 1))


def test_a_request_keeps_its_prompt_and_all_but_the_last_token() -> None:
    request = Request(100, 8)
    assert (request.first_len, request.last_len) == (100, 107)


def test_a_long_output_weighs_as_many_steps() -> None:
    lengths = from_pairs([(10, 1), (10, 3)])
    # 10, and 10, 11, 12: four steps.
    assert lengths.mean_running(lambda length: length * (length + 1) // 2) == Fraction(10 + 10 + 11 + 12, 4)
    assert lengths.mean_final(lambda length: length) == Fraction(10 * 1 + 12 * 3, 4)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=8),
    KEPT,
    st.integers(1, 20),
)
def test_the_mean_over_running_requests_is_that_over_every_step(
    pairs: list[tuple[int, int]], kept: Kept, unit: int
) -> None:
    steps = [prompt + done for prompt, output in pairs for done in range(output)]
    counted = Fraction(sum(kept.units(length, unit) for length in steps), len(steps))
    assert from_pairs(pairs).mean_running(lambda length: kept.units_upto(length, unit)) == counted


@given(st.lists(st.integers(1, 100_000), min_size=3, max_size=3).map(sorted), st.integers(1, 5000))
def test_quantiles_are_where_they_were_put(quantiles: list[int], output: int) -> None:
    lengths = from_quantiles(tuple(quantiles), (output,))
    prompts = sorted(item.prompt_tokens for item in lengths.requests for _ in range(item.weight))
    assert len(prompts) == POINTS
    assert {item.output_tokens for item in lengths.requests} == {output}
    p50, p95, p99 = quantiles
    assert prompts[POINTS // 2 - 1] <= p50 <= prompts[POINTS // 2] + 1
    assert prompts[94] <= p95 <= prompts[95] + 1
    assert prompts[98] <= p99 <= prompts[99]
    assert prompts[0] >= 1


@pytest.mark.parametrize("quantiles", [(1, 2), (), (3, 2, 1), (1, 2, 3, 4)])
def test_other_quantiles_are_refused(quantiles: tuple[int, ...]) -> None:
    with pytest.raises(FlagError, match="output"):
        from_quantiles((1,), quantiles)


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=6), st.integers(1, 200)
)
def test_nothing_is_longer_than_the_context_it_is_cut_to(pairs: list[tuple[int, int]], most: int) -> None:
    lengths, cut = from_pairs(pairs).cut(most)
    assert lengths.count == len(pairs)
    assert lengths.longest <= most
    assert cut == sum(prompt + output > most and (prompt, output) != (1, 1) for prompt, output in pairs)


def test_no_request_is_refused() -> None:
    with pytest.raises(FlagError):
        from_pairs([])
    assert from_pairs([(0, 0)]) == Lengths((Request(1, 1),))
