"""No block is spent twice, whatever comes late, is lost, stopped or killed: gateways, store and network under one time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.shared.ledgers import AnyLedger, ModelLedger, ServerLedger
from gateway.shared.protocol_world import BLOCKS, SETTINGS, Member, World
from gateway.shared.valkey_server import ValkeyServer, needs_valkey, valkey_server

WHICH = st.integers(0, 5)
STEPS = st.sampled_from([0, 1, 2, 4, 7, 11, 16, 21])


class Sharing(RuleBasedStateMachine):
    """`ledger` makes the store. After each thing that befalls them all live on for some steps, under load."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.ledger())
        for blocks, lasts_ms in ((9, 230), (23, 410)):
            self.world.join().load(blocks, lasts_ms, 4)
        self.world.live(24)

    def ledger(self) -> AnyLedger:
        return ModelLedger()

    def member(self, which: int) -> Member:
        return self.world.members[which % len(self.world.members)]

    @rule(
        which=WHICH,
        blocks=st.integers(1, BLOCKS),
        lasts_ms=st.integers(1, 3000),
        at_once=st.integers(0, 9),
        steps=STEPS,
    )
    def its_load_changes(self, which: int, blocks: int, lasts_ms: int, at_once: int, steps: int) -> None:
        member = self.member(which)
        member.load(blocks, lasts_ms, at_once)
        if not at_once:
            member.waiting.clear()
        self.world.live(steps)

    @rule(ms=st.sampled_from([1, 40, 240, 500, 760, 1000, 2500]), steps=STEPS)
    def nobody_does_anything_for_a_while(self, ms: int, steps: int) -> None:
        self.world.pass_time(ms)
        self.world.live(steps)

    @rule(which=WHICH, steps=STEPS)
    def a_gateway_is_cut_off(self, which: int, steps: int) -> None:
        self.member(which).is_cut = True
        self.world.live(steps)

    @rule(which=WHICH, steps=STEPS)
    def a_gateway_is_stopped(self, which: int, steps: int) -> None:
        self.member(which).is_stopped = True
        self.world.live(steps)

    @rule(which=WHICH, steps=STEPS)
    def a_gateway_is_well_again(self, which: int, steps: int) -> None:
        self.member(which).is_cut = False
        self.world.go_on(self.member(which))
        self.world.live(steps)

    @rule(which=st.lists(st.integers(0, 11), min_size=1, max_size=4), steps=STEPS)
    def old_calls_arrive(self, which: list[int], steps: int) -> None:
        for index in which:
            if self.world.messages:
                self.world.carry_out(self.world.messages[index % len(self.world.messages)])
        self.world.live(steps)

    @rule(which=WHICH, ms=st.integers(0, 1500), steps=STEPS)
    def an_answer_comes_late(self, which: int, ms: int, steps: int) -> None:
        member = self.member(which)
        if not member.is_stopped:
            self.world.carry_out(self.world.send(member))
            self.world.pass_time(ms)
            self.world.deliver(member)
        self.world.live(steps)

    @precondition(lambda self: len(self.world.members) > 1)
    @rule(which=WHICH, steps=STEPS)
    def a_gateway_is_killed(self, which: int, steps: int) -> None:
        self.world.kill(self.member(which))
        self.world.live(steps)

    @precondition(lambda self: len(self.world.members) < 4)
    @rule(rate=st.sampled_from([-2, 0, 2]), blocks=st.integers(1, BLOCKS), steps=STEPS)
    def a_gateway_joins(self, rate: int, blocks: int, steps: int) -> None:
        self.world.join(rate).load(blocks, 300, 3)
        self.world.live(steps)

    @rule(jump_ms=st.sampled_from([-3_600_000, -700, 0, 700, 3_600_000]), steps=STEPS)
    def the_server_s_time_is_set(self, jump_ms: int, steps: int) -> None:
        self.world.set_server_time(jump_ms)
        self.world.live(steps)

    @rule(steps=STEPS)
    def the_server_forgets_everything(self, steps: int) -> None:
        self.world.ledger.forget()
        self.world.live(steps)

    @rule(steps=STEPS)
    def the_server_is_started_again(self, steps: int) -> None:
        self.world.ledger.restart()
        self.world.live(steps)

    @rule(steps=STEPS, is_heard=st.booleans())
    def a_replica_takes_over(self, steps: int, is_heard: bool) -> None:
        """It has nothing of what was done in the last steps."""
        self.world.ledger.save()
        self.world.live(steps)
        self.world.ledger.take_over()
        self.world.live(steps if is_heard else 0)

    @invariant()
    def nothing_is_spent_twice(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """When all is well again and what ran has ended, everybody who waits is served in turn, and then everything is free."""
        world = self.world
        for member in world.members:
            world.go_on(member)
            member.is_cut = False
            member.load(0, 100, 0)
            member.waiting[:] = [BLOCKS, 1, BLOCKS * 2 // 3]
        for _ in range(400):
            world.live(1)
            if not any(member.waiting or member.requests for member in world.members):
                break
        assert not [
            (member.name, member.waiting, member.requests) for member in world.members if member.waiting
        ]
        world.messages.clear()
        for member in world.members:
            member.tell()
            world.carry_out(world.send(member, is_leaving=True))
        other = world.join()
        for _ in range(5):  # the store's time goes on by what is called, a quarter of a lease at the most
            world.pass_time(SETTINGS.lease_ms // 4)
            world.carry_out(world.send(other, is_leaving=True))
        assert world.ledger.names() == set()


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=15)


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


@needs_valkey
def test_the_same_with_the_script_on_a_real_server(server: ValkeyServer) -> None:
    opened: list[ServerLedger] = []

    class SharingByServer(Sharing):
        def ledger(self) -> AnyLedger:
            opened.append(ServerLedger(server))
            return opened[-1]

        def teardown(self) -> None:
            super().teardown()
            opened.pop().close()

    try:
        run_state_machine_as_test(SharingByServer, settings=settings(max_examples=8, stateful_step_count=10))
    finally:
        for ledger in opened:
            ledger.close()
