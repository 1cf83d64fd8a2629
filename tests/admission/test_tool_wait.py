"""Holding, moving or dropping a context while a tool runs."""

from __future__ import annotations

from vramledger.admission.tool_wait import PS_PER_MS, WaitAction, WaitBook, WaitCosts, price_of_held

COSTS = WaitCosts(context_tokens=1000, recompute_ps=200 * PS_PER_MS, other_tokens=4500)
# Computed anew for 200 ms with 500 of its tokens and 4,500 of others held: a million token milliseconds.
GIVEN_UP = 200 * PS_PER_MS * 5000


def test_nothing_is_held_before_anything_is_known() -> None:
    plan = WaitBook().plan("grep", COSTS)
    assert (plan.patience_ms, plan.then, plan.observations) == (0, WaitAction.DISCARD, 0)
    assert plan.waste_token_ps == GIVEN_UP


def test_short_waits_are_held_through_and_long_ones_not_at_all() -> None:
    book = WaitBook()
    for _ in range(50):
        book.ended("grep", 20)
        book.ended("build", 30_000)
    held = book.plan("grep", COSTS)
    assert (held.patience_ms, held.then, held.found_share, held.observations) == (
        None, WaitAction.PRESERVE, 1.0, 50,
    )  # fmt: skip
    assert held.waste_token_ps == 1000 * 20 * PS_PER_MS
    assert book.plan("build", COSTS).patience_ms == 0
    # Where nobody waits for the room, holding costs nothing.
    assert book.plan("build", COSTS, price=0.0).then is WaitAction.PRESERVE


def test_where_most_are_short_it_is_held_for_a_while() -> None:
    book = WaitBook()
    for number in range(100):
        book.ended("shell", 60_000 if number % 5 == 0 else 20)
    plan = book.plan("shell", COSTS)
    assert (plan.patience_ms, plan.then) == (20, WaitAction.DISCARD)
    assert plan.found_share == 0.8
    assert abs(plan.waste_token_ps - (1000 * 20 * PS_PER_MS + 0.2 * GIVEN_UP)) < 1
    # After those 20 ms only long waits are left.
    assert book.plan("shell", COSTS, waited_ms=20).patience_ms == 0


def test_a_link_to_the_host_is_used_where_it_wastes_less() -> None:
    # Out and back 10 ms each with 1,000 tokens: 20,000 token milliseconds against a million.
    book = WaitBook()
    plan = book.plan(
        "any",
        WaitCosts(
            context_tokens=1000, recompute_ps=200 * PS_PER_MS, other_tokens=4500, move_ps=10 * PS_PER_MS
        ),
    )
    assert (plan.then, plan.waste_token_ps) == (WaitAction.OFFLOAD, 2 * 10 * PS_PER_MS * 1000)


def test_waits_that_were_given_up_are_not_taken_for_short() -> None:
    book = WaitBook()
    for _ in range(30):
        book.ended("ask", 20)
        book.given_up("ask", 600_000)
    plan = book.plan("ask", COSTS)
    assert plan.found_share == 0.5
    assert plan.patience_ms == 20


def test_a_held_block_is_worth_what_somebody_waits_for() -> None:
    assert price_of_held(waiting_blocks=10, free_blocks=10, held_blocks=4) == 0.0
    assert price_of_held(waiting_blocks=12, free_blocks=10, held_blocks=4) == 0.5
    assert price_of_held(waiting_blocks=90, free_blocks=10, held_blocks=4) == 1.0
    assert price_of_held(waiting_blocks=90, free_blocks=10, held_blocks=0) == 0.0
