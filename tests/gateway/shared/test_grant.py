"""One gateway's side of the terms, and stories of two whose calls cross."""

from __future__ import annotations

import pytest

from gateway.shared.ledgers import ModelLedger
from gateway.shared.protocol_world import BLOCKS, PLACES, SETTINGS, Member, World
from vramledger.errors import InputError, SourceError
from vramledger.gateway.shared.grant import Grant, Standing
from vramledger.gateway.shared.settings import SharingSettings, WhenLost
from vramledger.gateway.shared.terms import Answer, answer_from

MS = 1_000_000
HALF_LEASE_NS = SETTINGS.spend_ns


class Clock:
    ns = 10**15

    def __call__(self) -> int:
        return self.ns


def granted(settings: SharingSettings = SETTINGS) -> tuple[Grant, Clock, int]:
    """A grant of 60 blocks and 5 places whose call began when the clock was at the third value; 10 blocks run."""
    clock = Clock()
    grant = Grant(settings, clock_ns=clock)
    grant.offer(BLOCKS, PLACES)
    grant.want(60, 5, held_blocks=0, held_places=0)
    grant.ask()
    began_ns = clock.ns
    clock.ns += 30 * MS
    grant.answered(Answer(60, 5, 60, 5, 40, 2, BLOCKS, PLACES, 2, 0, ""), began_ns)
    grant.want(60, 5, held_blocks=10, held_places=1)
    return grant, clock, began_ns


def two(first_waits: list[int], second_waits: list[int]) -> tuple[World, Member, Member]:
    """A store that is open, and two gateways that wait for it."""
    world = World(ModelLedger())
    first, second = world.join(), world.join()
    world.live(24)
    first.lasts_ms = second.lasts_ms = 10**9
    first.waiting[:], second.waiting[:] = first_waits, second_waits
    return world, first, second


def called(world: World, member: Member) -> None:
    member.serve()
    world.carry_out(world.send(member))
    world.deliver(member)


def test_a_grant_counts_from_when_the_call_began_and_falls_to_what_runs() -> None:
    grant, clock, began_ns = granted()
    clock.ns = began_ns + HALF_LEASE_NS - 1
    assert (grant.blocks, grant.places, grant.standing, grant.is_careful) == (60, 5, Standing.GRANTED, False)
    clock.ns += 1
    assert (grant.blocks, grant.places, grant.standing, grant.is_careful) == (10, 1, Standing.LOST, True)
    ask = grant.ask()
    assert (ask.keep_blocks, ask.keep_places, ask.want_blocks) == (10, 1, 60)
    assert (grant.lapses, grant.is_overdue) == (1, False)
    clock.ns = began_ns + SETTINGS.covered_ns
    assert (grant.lapses, grant.is_overdue) == (1, True)
    grant.want(0, 0, held_blocks=0, held_places=0)
    assert (grant.blocks, grant.is_overdue) == (0, False)


def test_an_answer_that_was_too_long_under_way_gives_nothing_to_rely_on() -> None:
    grant, clock, _ = granted()
    grant.ask()
    began_ns = clock.ns
    clock.ns += HALF_LEASE_NS
    grant.answered(Answer(80, 7, 80, 7, 20, 0, BLOCKS, PLACES, 2, 0, ""), began_ns)
    assert (grant.blocks, grant.standing) == (10, Standing.LOST)


@pytest.mark.parametrize(
    ("when", "blocks"), [(WhenLost.STOP, 10), (WhenLost.GRANT, 60), (WhenLost.SHARE, 25)]
)
def test_what_it_uses_without_the_store_is_a_setting(when: WhenLost, blocks: int) -> None:
    settings = SharingSettings(
        lease_ms=1000, heartbeat_ms=100, timeout_ms=100, chunks=4, when_lost=when, share=0.25
    )
    grant, clock, began_ns = granted(settings)
    clock.ns = began_ns + 10 * HALF_LEASE_NS
    assert grant.blocks == blocks
    assert grant.ask().keep_blocks == blocks
    assert grant.is_careful is (when is WhenLost.STOP)
    fresh = Grant(settings, clock_ns=clock)
    fresh.offer(BLOCKS, PLACES)
    assert fresh.blocks == (25 if when is WhenLost.SHARE else 0)


def test_what_is_given_back_is_not_used_from_the_moment_that_it_is_told() -> None:
    grant, _, _ = granted()
    grant.want(10, 1, held_blocks=10, held_places=1)
    assert grant.ask().keep_blocks == 60, "up to two pieces of 25 above what it wants are kept"
    grant.want(9, 1, held_blocks=9, held_places=1)
    assert grant.ask().keep_blocks == 9 + 25
    assert grant.blocks == 9 + 25
    grant.want(0, 0, held_blocks=0, held_places=0)
    assert grant.ask()[1:3] == (0, 0)
    assert (grant.blocks, grant.places) == (0, 0)


def test_who_may_use_more_is_told_once() -> None:
    clock, told = Clock(), []
    grant = Grant(SETTINGS, clock_ns=clock)
    grant.on_change = lambda: told.append(grant.blocks)
    grant.offer(BLOCKS, PLACES)
    for blocks in (20, 20, 15, 30):
        grant.want(90, 3, held_blocks=0, held_places=0)
        grant.ask()
        grant.answered(Answer(blocks, 3, 90, 3, 0, 0, BLOCKS, PLACES, 1, 0, ""), clock.ns)
    assert told == [20, 30]


def test_a_call_that_comes_after_a_later_one_changes_nothing() -> None:
    world, first, second = two([10], [])
    called(world, first)
    late = world.send(first)
    first.waiting += [30, 20]
    called(world, first)
    assert first.held[0] == 60
    world.carry_out(late)
    assert late.answer is None
    second.waiting += [50, 40]
    called(world, second)
    assert second.held[0] == 0
    world.check()


def test_who_comes_back_with_more_than_is_left_is_counted_and_nobody_takes_up_what_ends() -> None:
    """Stopped for longer than its lease with 60 blocks running, while the other was given all of 100."""
    world, first, second = two([60], [])
    world.live(2)
    first.is_stopped = True
    second.waiting[:] = [40] * 3
    world.live(40)
    assert (first.held[0], second.held[0]) == (60, 80)
    world.go_on(first)
    first.waiting[:] = [15] * 5
    world.live(4)
    assert (first.held[0], second.held[0]) == (60, 80)
    assert second.grant.answer is not None
    assert second.grant.answer.other_blocks == 60
    second.waiting[:] = [10] * 3
    second.requests[0].is_done = True
    world.live(4)
    assert first.held[0] + second.held[0] == 100, (
        "40 ended, 40 had been too many, though its share would be 50"
    )
    first.requests[0].is_done = True
    world.live(6)
    assert (first.held[0], second.held[0]) == (45, 50)
    world.check()


def test_a_smaller_instance_is_paid_for_by_all() -> None:
    world, first, second = two([20] * 2, [20] * 3)
    world.live(4)
    assert first.held[0] + second.held[0] == 100
    first.grant.offer(50, PLACES)
    first.waiting += [20]
    second.waiting += [20]
    world.live(4)
    for member in (first, second):
        member.requests[0].is_done = True
    world.live(4)
    assert first.held[0] + second.held[0] == 60, "nothing was let in: 60 of 50 are held"


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"OK",
        7,
        [],
        [1] * 11,
        [1] * 10,
        [*[1] * 9, -1, b""],
        [*[1] * 9, True, b""],
        [*[1] * 9, 2**60, b""],
        [*[1] * 10, "x"],
        [*[1] * 9, [1], b""],
    ],
)
def test_what_is_no_answer_of_the_script_is_named(reply: object) -> None:
    with pytest.raises(SourceError, match="not an answer of this script"):
        answer_from(reply)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"namespace": "a:b"}, "namespace"),
        ({"lease_ms": 50}, "lease_ms"),
        ({"heartbeat_ms": 2400}, "heartbeat_ms"),
        ({"hungry_ms": 0}, "hungry_ms"),
        ({"when_lost": WhenLost.SHARE}, "share"),
        ({"share": 1.5}, "share"),
    ],
)
def test_settings_that_contradict_themselves_are_named(wrong: dict[str, object], names: str) -> None:
    with pytest.raises(InputError, match=names):
        SharingSettings(**wrong)  # type: ignore[arg-type]
