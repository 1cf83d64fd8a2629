"""Turns named on with the blocks of the turn that continues them, and ids of blocks chained."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.workload.columnar.chains import chained, is_chained
from vramledger.workload.columnar.linking import continued, later_children, later_in_groups
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columns import columns_of
from vramledger.workload.request import Request, engine_block_ids
from workload.test_reading import AGENTIC

BLOCK = 16


def turn(prompt: int, output: int, blocks: list[int], *, conversation: int = 0, boundary: int = 0) -> Request:
    return Request(
        arrival_ns=0,
        prompt_tokens=prompt,
        output_tokens=output,
        blocks=tuple(blocks),
        conversation=conversation,
        boundary=boundary,
    )


def named(*turns: Request) -> list[tuple[int, ...]]:
    columns = columns_of(turns)
    linked, _ = continued(columns, BLOCK, later_in_groups(columns.conversation))
    return [request.blocks for request in linked.requests()]


def test_outputs_get_the_names_of_the_next_prompt() -> None:
    # 40 tokens are two blocks and a half, 30 more reach into the fifth; the next prompt names six.
    first, second = named(turn(40, 30, [1, 2, 3]), turn(96, 5, [1, 2, 4, 5, 6, 7]))
    assert first == (1, 2, 4, 5, 6)
    assert second == (1, 2, 4, 5, 6, 7)


def test_an_engine_then_hits_all_full_blocks_of_the_turn_before() -> None:
    first, second = named(turn(40, 30, [1, 2, 3]), turn(96, 5, [1, 2, 4, 5, 6, 7]))
    cached = engine_block_ids(first, BLOCK, engine_block_tokens=8, tokens=69)
    asked = engine_block_ids(second, BLOCK, engine_block_tokens=8, tokens=96)
    assert cached == asked[: 69 // 8]


def test_names_reach_through_turns_that_add_less_than_a_block() -> None:
    first, second, third = named(turn(40, 2, [1, 2, 3]), turn(45, 2, [1, 2, 4]), turn(64, 2, [1, 2, 5, 6]))
    assert (first, second, third) == ((1, 2, 5), (1, 2, 5), (1, 2, 5, 6))


@pytest.mark.parametrize(
    "other",
    [
        turn(96, 5, [1, 9, 4, 5, 6, 7]),  # another prompt
        turn(36, 5, [1, 2, 4]),  # a shorter one
        turn(96, 5, [1, 2, 4, 5, 6, 7], conversation=1),
        turn(96, 5, [1, 2, 4, 5, 6, 7], boundary=1),
    ],
)
def test_a_turn_that_does_not_continue_changes_nothing(other: Request) -> None:
    assert named(turn(40, 30, [1, 2, 3]), other)[0] == (1, 2, 3)


def test_a_prompt_of_less_than_a_block_proves_nothing() -> None:
    assert named(turn(10, 30, [1]), turn(96, 5, [1, 2, 4, 5, 6, 7]))[0] == (1,)


def test_a_turn_between_that_is_another_prompt_is_passed_over() -> None:
    assert named(turn(40, 30, [1, 2, 3]), turn(20, 5, [8, 9]), turn(96, 5, [1, 2, 4, 5, 6, 7]))[0] == (
        1,
        2,
        4,
        5,
        6,
    )


def test_children_are_those_of_the_parent() -> None:
    later = later_children(np.array([-1, 0, -1, 0, 1]))
    assert [list(later(place)) for place in range(5)] == [[1, 3], [4], [], [], []]


def test_linking_loses_no_name_of_a_prompts_full_blocks() -> None:
    plain, linked = read_workload(AGENTIC, link_turns=False), read_workload(AGENTIC)
    for before, after in zip(plain.requests(), linked.requests(), strict=True):
        full = before.prompt_tokens // 64
        assert after.blocks[:full] == before.blocks[:full]
        assert len(after.blocks) >= len(before.blocks)
    assert sum(len(request.blocks) for request in linked.requests()) > len(plain.table().block_ids)


LISTS = st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=1, max_size=6)


@settings(max_examples=100)
@given(lists=LISTS, far=st.sampled_from([1, 2**40]))
def test_chained_ids_are_equal_where_all_before_is(lists: list[list[int]], far: int) -> None:
    lists = [[block * far for block in item] for item in lists]
    offsets = np.cumsum([0, *map(len, lists)])
    ids = np.array([block for item in lists for block in item], dtype=np.int64)
    prefixes = [tuple(prefix) for item in lists for prefix in accumulate([block] for block in item)]
    out = chained(offsets, ids).tolist()
    assert len({*zip(out, prefixes, strict=True)}) == len(set(out)) == len(set(prefixes))
    assert is_chained(offsets, np.array(out, dtype=np.int64))
    before = {block: set() for block in ids.tolist()}  # type: dict[int, set[int]]
    for item in lists:
        for previous, block in zip([-1, *item], item, strict=False):
            before[block].add(previous)
    assert is_chained(offsets, ids) == all(len(found) == 1 for found in before.values())
