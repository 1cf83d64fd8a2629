"""Other settings while requests run and wait: they go from then on, and nothing that was promised is broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from admission.test_policy import View, candidate, policy_settings
from vramledger.admission.decision import Admission, Rule
from vramledger.admission.fair_queue import FairQueue
from vramledger.admission.policy import Policy
from vramledger.admission.settings import QueueBounds, Reservation
from vramledger.errors import InputError

VIEW = View(20)


def test_bounds_of_the_queue_go_for_those_that_come() -> None:
    settings = policy_settings(20)
    policy = Policy(settings)
    for identity in range(6):
        policy.at_arrival(candidate(identity), VIEW, identity)
    waiting = policy.queued_count
    assert waiting > 1
    policy.adopt(structs.replace(settings, queue=QueueBounds(max_requests=1)))
    assert policy.queued_count == waiting  # nobody is sent away by it
    refused = policy.at_arrival(candidate(9), VIEW, 9)
    assert (refused.answer, refused.rule) == (Admission.REJECT, Rule.QUEUE_REQUESTS)


def test_what_the_books_are_kept_by_cannot_change() -> None:
    settings = policy_settings(20)
    policy = Policy(settings)
    policy.at_arrival(candidate(1), VIEW, 0)
    for changes in ({"reservation": Reservation.OPTIMISTIC}, {"safety_tokens": 4}, {"max_running": 3}):
        with pytest.raises(InputError, match=f"{next(iter(changes))} cannot change"):
            policy.adopt(structs.replace(settings, weights={1: 5}, **changes))
    policy.adopt(structs.replace(settings, weights={1: 5}))


@given(
    st.dictionaries(st.integers(1, 3), st.integers(1, 9), min_size=1),
    st.dictionaries(st.integers(1, 3), st.integers(1, 9), min_size=1),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 500)), min_size=1, max_size=30),
)
def test_what_tenants_had_stays_in_proportion(
    before: dict[int, int], after: dict[int, int], served: list[tuple[int, int]]
) -> None:
    """After a change the next turn is that of the tenant with the least tokens over its weight, each weighed as it was when it had them."""
    queue = FairQueue(before)
    had = dict.fromkeys((1, 2, 3), 0.0)
    for tenant in had:  # all wait all the time, so that nobody is lifted
        queue.add(candidate(1000 + tenant, tenant=tenant), 1)
    for identity, (tenant, tokens) in enumerate(served):
        queue.pass_by(candidate(identity, tenant=tenant), tokens)
        had[tenant] += tokens / before.get(tenant, 1)
    queue.adopt(after, None)
    head = queue.head(0)
    assert head is not None
    # Rounding to the new weights' parts may decide between two that are less than a token apart.
    assert had[head.tenant] <= min(had.values()) + 1
