"""Who goes next: priorities, weights, and nobody for ever last."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from vramledger.admission.candidate import Candidate
from vramledger.admission.fair_queue import FairQueue


def candidate(identity: int, *, tenant: int = 0, priority: int = 0, sent_ps: int = 0) -> Candidate:
    return Candidate(
        identity=identity,
        prompt_tokens=10,
        max_output_tokens=10,
        tenant=tenant,
        priority=priority,
        sent_ps=sent_ps,
    )


def drained(queue: FairQueue, now_ps: int = 0) -> list[int]:
    order = []
    while (head := queue.head(now_ps)) is not None:
        queue.take(head)
        order.append(head.identity)
    return order


def test_one_tenant_is_served_in_order_and_a_better_priority_first() -> None:
    queue = FairQueue()
    for identity, priority in enumerate((1, 0, 1, 0)):
        queue.add(candidate(identity, priority=priority, sent_ps=identity), 5)
    assert drained(queue) == [1, 3, 0, 2]
    assert (len(queue), queue.tokens) == (0, 0)


def test_tenants_get_tokens_by_their_weights() -> None:
    queue = FairQueue({1: 3})
    for identity in range(80):
        queue.add(candidate(identity, tenant=identity % 2, sent_ps=identity), 10)
    first = Counter(identity % 2 for identity in drained(queue)[:40])
    assert first == {1: 30, 0: 10}


def test_a_tenant_that_was_idle_has_saved_nothing_up() -> None:
    queue = FairQueue()
    for identity in range(10):
        queue.add(candidate(identity, tenant=0), 10)
    for _ in range(5):
        head = queue.head(0)
        assert head is not None
        queue.take(head)
    for identity in range(10, 20):
        queue.add(candidate(identity, tenant=1), 10)
    assert Counter(identity >= 10 for identity in drained(queue)[:8]) == {True: 4, False: 4}


def test_who_waits_grows_better_by_one_priority_each_so_often() -> None:
    queue = FairQueue(ageing_ps=100)
    queue.add(candidate(0, priority=2, sent_ps=0), 5)
    queue.add(candidate(1, priority=0, sent_ps=150), 5)
    head = queue.head(299)
    assert head is not None and head.identity == 1
    queue.add(candidate(2, priority=0, sent_ps=290), 5)
    queue.take(head)
    head = queue.head(300)
    assert head is not None and head.identity == 0


def test_small_ones_go_before_large_ones_that_came_not_too_long_before() -> None:
    # A token counts as 2 of waiting: 10 tokens at 0 stand at 20, 1 token at 15 at 17, 1 token at 19 at 21.
    queue = FairQueue(token_wait_ps=2)
    for identity, (sent_ps, tokens) in enumerate([(0, 10), (15, 1), (19, 1)]):
        queue.add(candidate(identity, sent_ps=sent_ps), tokens)
    assert drained(queue) == [1, 0, 2]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 50)), max_size=40), st.data())
def test_what_goes_in_comes_out_once(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    token_wait_ps = data.draw(st.sampled_from([0, 3]))
    queue = FairQueue({0: 2}, ageing_ps=data.draw(st.sampled_from([None, 7])), token_wait_ps=token_wait_ps)
    asked = [
        candidate(identity, tenant=tenant, priority=priority, sent_ps=identity)
        for identity, (tenant, priority, _) in enumerate(rows)
    ]
    for one, (_, _, tokens) in zip(asked, rows, strict=True):
        queue.add(one, tokens)
    gone = {one.identity for one in asked if data.draw(st.booleans())}
    for one in asked:
        if one.identity in gone:
            queue.remove(one)
    assert queue.tokens == sum(
        tokens for one, (_, _, tokens) in zip(asked, rows, strict=True) if one.identity not in gone
    )
    order = drained(queue, 50)
    assert sorted(order) == [one.identity for one in asked if one.identity not in gone]
    # Within a tenant and a priority nobody overtakes but by size.
    for name in {(tenant, priority) for tenant, priority, _ in rows}:
        line = [identity for identity in order if rows[identity][:2] == name]
        assert line == sorted(
            line, key=lambda identity: (identity + token_wait_ps * rows[identity][2], identity)
        )


def test_those_too_old_are_found() -> None:
    queue = FairQueue()
    for identity in range(4):
        queue.add(candidate(identity, tenant=identity % 2, sent_ps=10 * identity), 1)
    assert [one.identity for one in queue.older_than(15, 30)] == [0, 1]


def test_who_is_put_behind_goes_after_all_others_of_its_line() -> None:
    queue = FairQueue()
    waiting = [candidate(identity, sent_ps=identity) for identity in range(4)]
    for one in waiting:
        queue.add(one, 10)
    queue.put_behind(waiting[0], 70)
    queue.put_behind(waiting[1], 30)
    assert [one.identity for one in queue] == [2, 3, 1, 0]
    queue.remove(waiting[1])
    assert (drained(queue), len(queue), queue.tokens) == ([2, 3, 0], 0, 0)
