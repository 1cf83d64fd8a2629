"""Two admission policies before one instance, each with its grant: everybody is served, and nothing is promised twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.live.test_admitter import capacity, facts
from gateway.shared.ledgers import ModelLedger
from gateway.shared.protocol_world import EPOCH_MS, SETTINGS
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.gateway.admitter import Ended, Ending, Verdict
from vramledger.gateway.live.admitter import PolicyAdmitter
from vramledger.gateway.live.capacity import Capacity
from vramledger.gateway.live.instance import Instance
from vramledger.gateway.shared.grant import Grant

MS = 1_000_000
BLOCKS, SAFETY, RUNNING = 64, 5, 6


class Pair:
    """Two gateways, one store, one time. A request generates a token in each of its gateway's steps, as many as it was asked for."""

    def __init__(self, reservation: Reservation) -> None:
        self.now_ms = EPOCH_MS
        self.ledger = ModelLedger()
        self.number = 0
        self.grants = [Grant(SETTINGS, clock_ns=lambda: self.now_ms * MS) for _ in range(2)]
        self.admitters = [PolicyAdmitter([self.instance(grant, reservation)]) for grant in self.grants]
        self.running: list[dict[int, list[int]]] = [{}, {}]
        self.waiting: list[dict[int, list[int]]] = [{}, {}]

    def instance(self, grant: Grant, reservation: Reservation) -> Instance:
        def settings_for(has: Capacity) -> PolicySettings:
            return PolicySettings(
                layout=has.layout,
                max_model_len=has.max_model_len,
                max_running=has.max_running,
                reservation=reservation,
                safety_blocks=SAFETY,
                watermark_blocks=3,
            )

        made = Instance("engine", 0, settings_for, grant)
        made.open(capacity(BLOCKS, running=RUNNING))
        return made

    def arrive(self, which: int, prompt: int, output: int) -> None:
        self.number += 1
        decision = self.admitters[which].decide(facts(self.number, prompt, output), self.now_ms * MS)
        if decision.verdict is Verdict.ADMIT:
            self.running[which][self.number] = [prompt, output, 0]
        elif decision.verdict is Verdict.QUEUE:
            self.waiting[which][self.number] = [prompt, output, 0]
        else:
            assert decision.verdict is Verdict.NEVER_FITS
            assert -(-(prompt + output - 1) // 16) > BLOCKS - SAFETY

    def step(self) -> None:
        """One step of the engine, and a call of each gateway."""
        self.now_ms += 20
        self.ledger.set_time(self.now_ms)
        for which, (admitter, grant) in enumerate(zip(self.admitters, self.grants, strict=True)):
            ask = grant.ask()
            answer = self.ledger.call(f"gateway{which}", ask, SETTINGS.lease_ms)
            assert answer is not None
            grant.answered(answer, self.now_ms * MS)
            running = self.running[which]
            for number, row in list(running.items()):
                row[2] += 1
                admitter.progress(number, row[2], self.now_ms * MS)
                if row[2] >= row[1]:
                    del running[number]
                    admitter.release(
                        number, Ending(how=Ended.COMPLETED, output_tokens=row[1]), self.now_ms * MS
                    )
            for number, decision in admitter.reconsider(self.now_ms * MS):
                assert decision.verdict is Verdict.ADMIT
                running[number] = self.waiting[which].pop(number)

    @property
    def most_blocks(self) -> int:
        return sum(admitter.instances[0].policy.most_blocks for admitter in self.admitters)

    @property
    def places(self) -> int:
        return sum(len(rows) for rows in self.running)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 900), st.integers(1, 120)), min_size=1, max_size=25
)


@pytest.mark.parametrize("reservation", [Reservation.NO_EVICT, Reservation.QUANTILE, Reservation.OPTIMISTIC])
@settings(max_examples=20)
@given(requests=REQUESTS)
def test_all_are_served_and_no_more_than_the_instance_is_promised(
    reservation: Reservation, requests: list[tuple[int, int, int]]
) -> None:
    pair = Pair(reservation)
    for request in requests:
        pair.arrive(*request)
    for _ in range(4000):
        if not any((*pair.running, *pair.waiting)):
            break
        pair.step()
        assert pair.places <= RUNNING
        if reservation is Reservation.NO_EVICT:
            assert pair.most_blocks <= BLOCKS - SAFETY
    assert not any((*pair.running, *pair.waiting)), (pair.running, pair.waiting, pair.grants[0].answer)
    pair.step()
    assert [(grant.blocks, grant.places) for grant in pair.grants] == [(0, 0), (0, 0)]


def test_a_request_for_the_whole_pool_is_not_passed_by_for_ever() -> None:
    """One gateway always has small ones; the other's needs all that there is."""
    pair = Pair(Reservation.NO_EVICT)
    pair.arrive(1, 16 * (BLOCKS - SAFETY) - 40, 40)
    for step in range(3000):
        if step % 3 == 0 and len(pair.waiting[0]) < 4:
            pair.arrive(0, 40, 20)
        pair.step()
        if pair.running[1]:
            return
    raise AssertionError(pair.grants[1].answer)


def test_safety_blocks_are_kept_free_once_and_not_by_each_gateway() -> None:
    pair = Pair(Reservation.NO_EVICT)
    for _ in range(60):
        pair.step()
    for which, blocks in ((0, 29), (1, 30)):
        pair.arrive(which, 16 * blocks - 40, 40)
    for _ in range(4):
        pair.step()
    assert pair.most_blocks == BLOCKS - SAFETY
