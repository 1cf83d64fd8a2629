"""Orders of reuse, beside lists that say the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vramledger.kvcache.blocks.eviction import FIFO, LRU, FarthestNextUse

MOVES = st.lists(st.tuples(st.sampled_from("ttwgge"), st.integers(0, 9)), max_size=60, min_size=8)


@settings(deadline=None, max_examples=100)
@given(moves=MOVES)
def test_lru_is_a_list_whose_ends_are_given_back_to(moves: list[tuple[str, int]]) -> None:
    order, free, held, ever = LRU(range(3, 9)), list(range(3, 9)), list[int](), set[int]()
    for move, pick in moves:
        if move == "t" and free:
            held.append(free.pop(0))
            assert order.take() == held[-1]
            ever.add(held[-1])
        elif move == "w":
            # Only what was given out before can be hit.
            used = [block for block in free if block in ever]
            if used:
                block = used[pick % len(used)]
                free.remove(block)
                held.append(block)
                order.withdraw(block)
        elif move in "ge" and held:
            blocks, held = held[: pick % 3 + 1], held[pick % 3 + 1 :]
            (order.give_back if move == "g" else order.give_back_empty)(blocks)
            free = free + blocks if move == "g" else blocks + free
        assert list(order) == free
        assert len(order) == len(free)


@settings(deadline=None, max_examples=100)
@given(moves=MOVES)
@example(moves=[("t", 0)] * 3 + [("g", 2), ("w", 0), ("t", 0), ("g", 0)])
def test_fifo_gives_out_what_was_taken_first(moves: list[tuple[str, int]]) -> None:
    order = FIFO(range(3))
    empty, waiting, held, since = list(range(3)), list[int](), list[int](), dict[int, int]()
    for clock, (move, pick) in enumerate(moves):
        if move == "t" and empty + waiting:
            waiting.sort(key=since.__getitem__)
            block = (empty or waiting).pop(0)
            assert order.take() == block
            since[block] = clock
            held.append(block)
        elif move == "w" and waiting:
            block = waiting.pop(pick % len(waiting))
            order.withdraw(block)
            held.append(block)
        elif move in "ge" and held:
            blocks, held = held[: pick % 3 + 1], held[pick % 3 + 1 :]
            if move == "g":
                order.give_back(blocks)
                waiting += blocks
            else:
                order.give_back_empty(blocks)
                empty = blocks + empty
        assert list(order) == empty + sorted(waiting, key=since.__getitem__)
        assert len(order) == len(empty) + len(waiting)


def test_who_sees_the_future_loses_what_is_needed_last() -> None:
    next_use = [5, 9, 7]
    order = FarthestNextUse(range(3), next_use)
    blocks = [order.take() for _ in range(3)]
    assert order.next_to_go() is None
    order.give_back(blocks)
    assert order.next_to_go() == 9
    order.withdraw(1)
    next_use[1] = 6
    order.give_back([1])
    assert list(order) == [2, 1, 0]
    assert [order.take() for _ in range(3)] == [2, 1, 0]
    with pytest.raises(LookupError):
        order.take()
