"""Hit curves, beside those of an independent program and beside plain reasoning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.cache_curves import read_prompts

from vramledger.kvcache.blocks.replay import Policy, Prompts, ceiling, hit_share, prompts_of

ROOT = Path(__file__).parents[3]
RECORDED = sorted((Path(__file__).parent / "recorded").glob("mooncake-*.json"))
TRACES = ROOT / "data" / "traces" / "mooncake-fast25"


@pytest.fixture(scope="module")
def mooncake() -> Prompts:
    return read_prompts(next(TRACES.glob("conversation_trace*.jsonl.gz")), 512)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_hit_curves_are_an_independent_programs(path: Path, mooncake: Prompts) -> None:
    recorded = json.loads(path.read_text(encoding="utf-8"))
    assert (TRACES / recorded["trace"]).exists()
    assert {policy for policy, *_ in recorded["points"]} == set(Policy)
    for policy, blocks, hit_tokens, looked_up_tokens in recorded["points"]:
        found = hit_share(mooncake, blocks, Policy(policy), warmup=recorded["warmup"])
        assert found.was_full
        assert (found.hit_tokens, found.looked_up_tokens) == (hit_tokens, looked_up_tokens), (policy, blocks)


def test_the_record_is_there() -> None:
    assert RECORDED


def test_what_is_used_again_and_again_survives_under_lru_and_not_under_fifo() -> None:
    common, once = (1,), [(number,) for number in range(10, 20)]
    runs = [run for other in once for run in ((common, 4), (other, 4))]
    prompts = prompts_of(runs, 4)
    assert hit_share(prompts, 2, Policy.LRU).hit_tokens == 9 * 4
    assert hit_share(prompts, 2, Policy.FIFO).hit_tokens < 9 * 4
    assert hit_share(prompts, 2, Policy.FARTHEST).hit_tokens == 9 * 4


def test_a_part_filled_last_block_counts_its_own_tokens() -> None:
    prompts = prompts_of([((1, 2), 7), ((1, 2), 7)], 4)
    assert prompts.tokens == ((4, 3), (4, 3))
    assert ceiling(prompts).hit_tokens == 7


PROMPTS = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=5).map(lambda run: (tuple(run), 4 * len(run))),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(runs=PROMPTS, blocks=st.integers(5, 12))
def test_nobody_hits_more_than_who_sees_the_future_and_no_cache_more_than_an_endless_one(
    runs: list[tuple[tuple[int, ...], int]], blocks: int
) -> None:
    prompts = prompts_of(runs, 4)
    shares = {policy: hit_share(prompts, blocks, policy).hit_tokens for policy in Policy}
    assert shares[Policy.LRU] <= shares[Policy.FARTHEST] <= ceiling(prompts).hit_tokens
    assert shares[Policy.LRU] <= hit_share(prompts, blocks + 1, Policy.LRU).hit_tokens
