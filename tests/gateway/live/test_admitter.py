"""Requests before several engines: each is with one of them, leaves once, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from vramledger.admission.settings import PolicySettings, QueueBounds, Reservation
from vramledger.engines.full_pool import WhenFull
from vramledger.gateway.admitter import Ended, Ending, Kind, PromptTokens, RequestFacts, TokenSource, Verdict
from vramledger.gateway.live.admitter import PolicyAdmitter
from vramledger.gateway.live.capacity import Capacity
from vramledger.gateway.live.engine_state import EngineState
from vramledger.gateway.live.instance import Condition, Instance
from vramledger.gateway.shared.budget import Budget, WholeBudget
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout

MS = 1_000_000


def capacity(blocks: int = 64, *, block_tokens: int = 16, running: int = 8) -> Capacity:
    return Capacity(
        engine="vllm",
        layout=PoolLayout(num_blocks=blocks, groups=(BlockGroup(block_tokens=block_tokens),)),
        max_model_len=blocks * block_tokens,
        max_running=running,
        when_full=WhenFull.RECOMPUTE,
    )


def instances(
    capacities: Sequence[Capacity],
    reservation: Reservation = Reservation.NO_EVICT,
    budget: Budget | None = None,
) -> list[Instance]:
    def settings_for(has: Capacity) -> PolicySettings:
        return PolicySettings(
            layout=has.layout,
            max_model_len=has.max_model_len,
            max_running=has.max_running,
            reservation=reservation,
            queue=QueueBounds(max_requests=6),
        )

    made = [Instance(f"engine {place}", place, settings_for, budget) for place in range(len(capacities))]
    for one, has in zip(made, capacities, strict=True):
        one.open(has)
    return made


def facts(number: int, prompt: int = 100, output: int | None = 100, **more: object) -> RequestFacts:
    counted = PromptTokens(tokens=prompt, most_tokens=prompt, source=TokenSource.ENGINE)
    asked = RequestFacts(
        number=number,
        kind=Kind.CHAT,
        model="m",
        prompt_bytes=4 * prompt,
        prompt=counted,
        max_output_tokens=output,
    )
    return replace(asked, **more)


def state(at_ns: int, used: int | None, **totals: float) -> EngineState:
    return EngineState(asked_ns=at_ns, answered_ns=at_ns, used_blocks=used, totals=totals)


def dies(instance: Instance) -> None:
    for _ in range(2):
        instance.unanswered(is_unreachable=True)


def is_empty(admitter: PolicyAdmitter) -> bool:
    return not admitter.open_requests and all(
        one.policy.admitted_count
        == one.policy.queued_count
        == one.policy.held_blocks
        == one.policy.most_blocks
        == one.silent
        == 0
        for one in admitter.instances
    )


MOVES = st.lists(
    st.tuples(
        st.sampled_from(("arrive", "release", "progress", "ask", "die", "live", "restart", "resize")),
        st.integers(0, 999),
        st.integers(1, 700),
    ),
    max_size=80,
)


@settings(deadline=None)
@given(MOVES, st.sampled_from(Reservation).filter(lambda one: one is not Reservation.RISK))
def test_whatever_happens_each_leaves_once_and_the_books_return_to_nothing(
    moves: list[tuple[str, int, int]], reservation: Reservation
) -> None:
    made = instances([capacity(), capacity(32, running=3)], reservation)
    admitter = PolicyAdmitter(made)
    held: dict[int, RequestFacts] = {}
    waiting: dict[int, RequestFacts] = {}
    now, number = 0, 0

    def heed(told: RequestFacts, verdict: Verdict) -> None:
        if verdict is Verdict.ADMIT:
            held[told.number] = told
        elif verdict is Verdict.QUEUE:
            waiting[told.number] = told

    for move, which, size in moves:
        now += 50 * MS
        one = made[which % 2]
        if move == "arrive":
            number += 1
            asked = facts(number, size, which or None, stream=bool(which % 3), branches=1 + which % 2)
            heed(asked, admitter.decide(asked, now).verdict)
        elif move == "release" and (held or waiting):
            everybody = [*held, *waiting]
            gone = everybody[which % len(everybody)]
            how = Ended.COMPLETED if which % 4 else Ended.UPSTREAM_FAILED
            ending = Ending(how=how, output_tokens=size if which % 5 else None, counted=bool(which % 2))
            admitter.release(gone, ending, now)
            held.pop(gone, None)
            waiting.pop(gone, None)
        elif move == "progress" and held:
            admitter.progress([*held][which % len(held)], size, now)
        elif move == "ask":
            one.answered(state(now, which % 64, total_steps=now), held_blocks=0, explained_blocks=which % 7)
        elif move == "die":
            dies(one)
        elif move in ("live", "restart"):
            total = now if move == "live" else 0
            if one.answered(state(now, 0, total_steps=total), held_blocks=0, explained_blocks=0):
                admitter.cleared(one, now)
        elif move == "resize":
            one.open(capacity(32 + which % 2 * 32, running=3 + which % 2 * 5))
            admitter.reopened()
        for again, decision in admitter.reconsider(now):
            heed(waiting.pop(again), decision.verdict)
        assert held.keys().isdisjoint(waiting)
        assert admitter.open_requests == len(held) + len(waiting)
    for gone in [*held, *waiting]:
        admitter.release(gone, Ending(how=Ended.COMPLETED, output_tokens=3), now)
    assert is_empty(admitter)


def test_one_that_waits_for_an_engine_that_dies_is_decided_anew_among_the_others() -> None:
    made = instances([capacity(), capacity(32)])
    admitter = PolicyAdmitter(made)
    first = admitter.decide(facts(1, 500, 500), 0)
    second = admitter.decide(facts(2, 250, 250), 1)
    assert [(one.verdict, one.instance) for one in (first, second)] == [
        (Verdict.ADMIT, 0),
        (Verdict.ADMIT, 1),
    ]
    third = admitter.decide(facts(3, 250, 250), 2)
    assert third.verdict is Verdict.QUEUE
    dies(made[third.instance])
    (moved,) = admitter.reconsider(3)
    assert (moved[0], moved[1].verdict, moved[1].instance) == (3, Verdict.QUEUE, 1 - third.instance)
    dies(made[1 - third.instance])
    ((number, gone),) = admitter.reconsider(4)
    assert (number, gone.verdict, gone.rule) == (3, Verdict.UNAVAILABLE, "engine-down")
    assert gone.retry_after_ms
    assert admitter.reconsider(5) == []
    for number in (1, 2):
        admitter.release(number, Ending(how=Ended.UPSTREAM_FAILED), 6)
    assert is_empty(admitter)


def test_an_engine_that_was_started_anew_holds_nothing_of_what_was_admitted_before() -> None:
    (one,) = made = instances([capacity()])
    admitter = PolicyAdmitter(made)
    assert not one.answered(state(5, 0, total_prompt_tokens=900), held_blocks=0, explained_blocks=0)
    admitter.decide(facts(1), 1)
    admitter.decide(facts(2), 8)
    assert not one.answered(state(10, 9, total_prompt_tokens=950), held_blocks=9, explained_blocks=9)
    admitter.decide(facts(3), 15)
    assert one.answered(state(20, 0, total_prompt_tokens=40), held_blocks=9, explained_blocks=9)
    admitter.cleared(one, 20)
    assert one.policy.admitted_count == 1  # the third may have come after the start
    for number in (1, 2, 3):
        admitter.progress(number, 4, 21)
        admitter.release(number, Ending(how=Ended.UPSTREAM_FAILED), 22)
    assert is_empty(admitter)
    assert admitter.instance_states(23)[0].total_restarts == 1


def test_a_request_goes_where_it_goes_in_and_where_nothing_is_opened_nowhere() -> None:
    made = instances([capacity(), capacity(256)])
    admitter = PolicyAdmitter(made)
    assert admitter.decide(facts(1, 1500, 100), 0).instance == 1
    assert admitter.decide(facts(2), 1).instance == 0
    assert admitter.decide(facts(3, 5000, 10), 1).verdict is Verdict.NEVER_FITS
    made[1].drain()
    assert made[1].condition is Condition.DRAINING
    gone = admitter.decide(facts(4, 1500, 100), 2)
    assert (gone.verdict, gone.numbers["prompt_tokens"]) == (Verdict.NEVER_FITS, 1500)
    unopened = PolicyAdmitter([Instance("new", 0, lambda _: pytest.fail("it has said nothing"))])
    assert unopened.decide(facts(1), 0).rule == "engine-opening"
    assert unopened.healthy_instance() == 0


def test_blocks_of_others_are_left_to_them() -> None:
    (one,) = made = instances([capacity()])
    admitter = PolicyAdmitter(made)
    for at_ns in (0, 1):
        one.answered(state(at_ns, 60), held_blocks=0, explained_blocks=0)
    told = admitter.decide(facts(1), 2)
    assert (told.verdict, told.rule, told.numbers["free_blocks"]) == (Verdict.QUEUE, "free-blocks", 4)
    assert told.numbers["foreign_blocks"] == 60
    one.answered(state(1_000 * MS, 3), held_blocks=0, explained_blocks=0)
    ((_, let_in),) = admitter.reconsider(1_001 * MS)
    assert let_in.verdict is Verdict.ADMIT


def test_of_an_instance_that_is_shared_no_more_is_used_than_was_granted() -> None:
    class Share(WholeBudget):
        """What was granted, and what was last wanted."""

        granted = 0
        wanted: tuple[int, ...] = ()

        @property
        def blocks(self) -> int:
            return self.granted

        def want(
            self,
            blocks: int,
            places: int,
            *,
            held_blocks: int,
            held_places: int,
            next_blocks: int = 0,
            next_places: int = 0,
        ) -> None:
            self.wanted = blocks, places, held_blocks, held_places, next_blocks, next_places

    share = Share()
    (one,) = made = instances([capacity()], budget=share)
    admitter = PolicyAdmitter(made)
    assert (share.total_blocks, share.total_places) == (64, 8)
    assert admitter.decide(facts(1), 1).verdict is Verdict.QUEUE  # 13 blocks
    assert share.wanted == (14, 1, 0, 0, 13, 1)
    share.granted = 20
    assert [decision.verdict for _, decision in admitter.reconsider(2)] == [Verdict.ADMIT]
    assert share.wanted == (13, 1, 13, 1, 0, 0)
    assert admitter.decide(facts(2), 3).verdict is Verdict.QUEUE
    share.granted, share.is_careful = 64, True
    assert admitter.reconsider(4) == []
    share.is_careful = False
    # The others' 30 blocks are no stranger's.
    share.other_blocks = 30
    for at_ns in (5, 6):
        one.answered(state(at_ns, 30), held_blocks=0, explained_blocks=0)
    share.total_places = 1
    assert admitter.reconsider(7) == []
    share.total_places = 8
    assert [decision.verdict for _, decision in admitter.reconsider(8)] == [Verdict.ADMIT]
    assert admitter.decide(facts(3, 2000, 10), 9).verdict is Verdict.NEVER_FITS
    for number in (1, 2):
        admitter.release(number, Ending(how=Ended.COMPLETED, output_tokens=1), 10)
    assert share.wanted == (0, 0, 0, 0, 0, 0)
    assert is_empty(admitter)


def test_blocks_that_came_back_are_given_out_before_the_engine_is_asked_again() -> None:
    (one,) = instances([capacity(64, running=64)], Reservation.OPTIMISTIC)
    admitter = PolicyAdmitter([one])
    at_ns = 1
    one.answered(state(0, 0), held_blocks=0, explained_blocks=0)
    for number in range(1, 9):
        assert admitter.decide(facts(number, prompt=112), at_ns).verdict is Verdict.ADMIT
        admitter.progress(number, 1, at_ns)
    held = one.policy.held_blocks
    one.answered(state(at_ns, held), held_blocks=held, explained_blocks=held)
    for number in range(10, 15):
        assert admitter.decide(facts(number, prompt=112), at_ns).verdict is Verdict.QUEUE
    for number in range(1, 6):
        admitter.release(number, Ending(how=Ended.COMPLETED, output_tokens=1), at_ns + MS)
    let_in = [number for number, told in admitter.reconsider(at_ns + MS) if told.verdict is Verdict.ADMIT]
    assert let_in == [10, 11, 12, 13, 14]


def test_what_the_engine_holds_beyond_the_books_is_not_given_out_when_others_end() -> None:
    (one,) = instances([capacity(64, running=64)], Reservation.OPTIMISTIC)
    admitter = PolicyAdmitter([one])
    for number in range(1, 5):
        assert admitter.decide(facts(number, prompt=112), 1).verdict is Verdict.ADMIT
        admitter.progress(number, 1, 1)
    held = one.policy.held_blocks
    one.answered(state(1, 60), held_blocks=held, explained_blocks=60)
    assert admitter.decide(facts(5, prompt=112), 1).verdict is Verdict.QUEUE
    admitter.release(1, Ending(how=Ended.COMPLETED, output_tokens=1), 1 + MS)
    assert one.view(1 + MS).free_blocks == 64 - 60 + held // 4
