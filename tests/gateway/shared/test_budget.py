"""A gateway that stands alone has everything."""

from __future__ import annotations

from vramledger.gateway.shared.budget import Budget, WholeBudget


def test_the_whole_instance_is_its_own_and_more_of_it_is_told() -> None:
    budget: Budget = WholeBudget(101, 7)
    told: list[int] = []
    budget.on_change = lambda: told.append(budget.blocks)
    assert (budget.blocks, budget.places, budget.total_blocks, budget.other_blocks) == (101, 7, 101, 0)
    budget.want(500, 50, held_blocks=90, held_places=3, next_blocks=30)
    assert (budget.blocks, budget.places, budget.is_careful) == (101, 7, False)
    budget.offer(89, 7, "second start")
    assert (budget.blocks, told) == (89, [])
    budget.offer(89, 11)
    assert (budget.places, told) == (11, [89])
