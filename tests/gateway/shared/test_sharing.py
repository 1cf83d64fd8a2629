"""Gateways that share a real store: who gets what, and that nobody goes without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.client import until
from gateway.shared.gateways import gateway, part
from gateway.shared.valkey_server import ValkeyServer, needs_valkey, valkey_server

pytestmark = needs_valkey


@pytest.fixture(scope="module")
def running() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


@pytest.fixture
def server(running: ValkeyServer) -> ValkeyServer:
    running.command("FLUSHALL")
    return running


def test_who_comes_first_has_what_it_wants_and_gives_its_rest_to_who_comes_next(
    server: ValkeyServer,
) -> None:
    async def story() -> None:
        first, second = gateway(server), gateway(server)
        one, two = part(first), part(second)
        first.start()
        one.want(970, 9, held_blocks=0, held_places=0)
        await until(lambda: one.blocks >= 970 and one.places >= 9)
        second.start()
        two.want(700, 4, held_blocks=0, held_places=0)
        await until(lambda: (one.blocks, two.blocks) == (500, 500))
        assert two.other_blocks == 500
        one.want(100, 1, held_blocks=0, held_places=0)
        await until(lambda: two.blocks >= 700 and one.blocks >= 100)
        assert one.blocks + two.blocks <= 1000
        await first.leave()
        two.want(1000, 10, held_blocks=0, held_places=0)
        await until(lambda: two.blocks == 1000)
        await second.leave()

    asyncio.run(story())


def test_what_runs_is_not_taken_and_comes_over_as_it_ends(server: ValkeyServer) -> None:
    async def story() -> None:
        first, second = gateway(server), gateway(server)
        one, two = part(first), part(second)
        first.start()
        one.want(2000, 10, held_blocks=0, held_places=0)
        await until(lambda: one.blocks == 1000)
        one.want(2000, 10, held_blocks=1000, held_places=10)
        second.start()
        two.want(2000, 10, held_blocks=0, held_places=0)
        await until(lambda: one.answer is not None and one.answer.gateways == 2)
        assert (two.blocks, one.blocks) == (0, 1000)
        for held in (900, 700, 550):
            one.want(2000, 10, held_blocks=held, held_places=10)
            assert one.blocks == held
            await until(lambda held=held: two.blocks == 1000 - held)  # type: ignore[misc]
        one.want(2000, 10, held_blocks=300, held_places=10)
        await until(lambda: (one.blocks, two.blocks) == (500, 500))
        await asyncio.gather(first.leave(), second.leave())

    asyncio.run(story())


def test_a_request_larger_than_a_share_has_its_turn(server: ValkeyServer) -> None:
    """Two that each need 800 of 1000: neither could with its half, and each has its turn when the other's ended."""

    async def story() -> None:
        first, second = gateway(server), gateway(server)
        one, two = part(first), part(second)
        first.start()
        second.start()
        for grant in (one, two):
            grant.want(800, 1, held_blocks=0, held_places=0, next_blocks=800, next_places=1)
        await until(lambda: one.blocks >= 800 or two.blocks >= 800)
        served, waits = (one, two) if one.blocks >= 800 else (two, one)
        served.want(1600, 2, held_blocks=800, held_places=1, next_blocks=800, next_places=1)
        await until(lambda: served.blocks == 800 and waits.blocks == 200)
        served.want(800, 1, held_blocks=0, held_places=0, next_blocks=800, next_places=1)
        await until(lambda: waits.blocks >= 800)
        await asyncio.gather(first.leave(), second.leave())

    asyncio.run(story())


def test_more_gateways_than_places_take_turns(server: ValkeyServer) -> None:
    async def story() -> None:
        gateways = [gateway(server) for _ in range(7)]
        grants = [part(one, blocks=0, places=2) for one in gateways]
        served: set[int] = set()
        for one, grant in zip(gateways, grants, strict=True):
            one.start()
            grant.want(0, 3, held_blocks=0, held_places=0, next_places=1)

        def serve() -> bool:
            """Each request that gets a place ends at once; its gateway has more of them."""
            assert sum(grant.places for grant in grants) <= 2
            for index, grant in enumerate(grants):
                if grant.places:
                    served.add(index)
                    grant.want(0, 3, held_blocks=0, held_places=1, next_places=1)
                    grant.want(0, 3, held_blocks=0, held_places=0, next_places=1)
            return len(served) == len(grants)

        await until(serve)
        await asyncio.gather(*(one.leave() for one in gateways))

    asyncio.run(story())


def test_a_caller_that_fails_when_it_is_told_ends_no_grant(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        one = gateway(server)
        grant = part(one)

        def fails() -> None:
            raise ValueError("of no matter")

        grant.on_change = fails
        one.start()
        grant.want(100, 1, held_blocks=0, held_places=0)
        await until(lambda: grant.blocks >= 100)
        answers = one.counters.answers
        await until(lambda: one.counters.answers > answers + 2)
        await one.leave()

    asyncio.run(story())
    assert "renewing grants failed" in caplog.text
