"""What comes of it when gateways and stores are killed, stopped, emptied and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.client import WAIT_S, until
from gateway.shared.gateways import BLOCKS, gateway, part
from gateway.shared.hammer import QUICK, Engine
from gateway.shared.valkey_server import ValkeyServer, needs_valkey, valkey_server
from vramledger.gateway.shared.grant import Standing

pytestmark = needs_valkey

ROOT = Path(__file__).parents[3]


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


@contextmanager
def hammers(
    server: ValkeyServer, counts: Path, count: int, *more: str
) -> Iterator[list[subprocess.Popen[str]]]:
    counts.write_text(json.dumps([0] * count))
    processes = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("hammer.py")), str(server.socket), str(counts), str(slot), str(BLOCKS), *more],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        for slot in range(count)
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=WAIT_S)


def test_processes_that_hammer_never_hold_more_than_there_is(server: ValkeyServer, tmp_path: Path) -> None:
    with hammers(server, tmp_path / "counts", 3, "1.8") as processes:
        told = [json.loads(process.communicate(timeout=WAIT_S)[0]) for process in processes]
    assert [one["too_much"] for one in told] == [0, 0, 0]
    assert all(one["admitted"] > 0 for one in told)


def test_a_killed_gateway_s_blocks_come_back_after_its_lease(server: ValkeyServer, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "counts")

    def held() -> bool:
        with engine.counts() as counts:
            return counts[0] > 0

    async def story() -> None:
        survivor = gateway(server)
        grant = part(survivor, places=0, instance="engine")
        with hammers(server, tmp_path / "counts", 1) as (process,):
            await until(held)
            process.kill()
            process.wait(WAIT_S)
            survivor.start()
            await until(lambda: grant.answer is not None and grant.answer.gateways == 2)
            assert grant.other_blocks > 0
            grant.want(BLOCKS, 0, held_blocks=0, held_places=0)
            await until(lambda: grant.blocks == BLOCKS)
            assert grant.other_blocks == 0
        await survivor.leave()

    asyncio.run(story())


def test_a_gateway_that_was_stopped_beyond_its_lease_spends_nothing_of_it(
    server: ValkeyServer, tmp_path: Path
) -> None:
    """It hammers on the moment that it wakes; by then all is another's, which the engine counts."""

    async def story() -> None:
        other = gateway(server)
        grant = part(other, places=0, instance="engine")
        with hammers(server, tmp_path / "counts", 1) as (process,):
            engine = Engine(tmp_path / "counts")

            def count() -> int:
                with engine.counts() as counts:
                    return counts[0]

            await until(lambda: count() > 0)
            with engine.counts():  # it is between two counts, and stops before the next
                process.send_signal(signal.SIGSTOP)
                os.waitpid(process.pid, os.WUNTRACED)
            orphaned = count()
            other.start()
            grant.want(BLOCKS, 0, held_blocks=0, held_places=0)
            await until(lambda: grant.blocks == BLOCKS)
            grant.want(BLOCKS, 0, held_blocks=BLOCKS, held_places=0)
            process.send_signal(signal.SIGCONT)
            await until(lambda: grant.answer is not None and grant.answer.gateways == 2)
            await until(lambda: count() == 0, "what it ran ends, and nothing new is let in")
            assert grant.blocks == BLOCKS
            grant.want(0, 0, held_blocks=0, held_places=0)
            await until(lambda: count() > 0)
        assert orphaned <= BLOCKS
        await other.leave()

    asyncio.run(story())


@pytest.mark.parametrize(
    "options", [(), ("--appendonly", "yes", "--appendfsync", "always")], ids=["empty", "kept"]
)
def test_a_store_that_is_killed_and_comes_back_gives_nothing_twice(options: tuple[str, ...]) -> None:
    async def story(server: ValkeyServer) -> None:
        gateways = [gateway(server), gateway(server)]
        one, two = (part(each) for each in gateways)
        for each in gateways:
            each.start()
        one.want(BLOCKS, 10, held_blocks=0, held_places=0)
        two.want(BLOCKS, 10, held_blocks=0, held_places=0)
        await until(lambda: (one.blocks, two.blocks) == (500, 500))
        one.want(BLOCKS, 10, held_blocks=450, held_places=5)
        two.want(BLOCKS, 10, held_blocks=500, held_places=5)
        server.kill()
        await until(lambda: one.standing is two.standing is Standing.LOST)
        assert (one.blocks, two.blocks, one.is_careful) == (450, 500, True)
        assert gateways[0].counters.unreachable > 0
        one.want(BLOCKS, 10, held_blocks=300, held_places=3)
        assert one.blocks == 300
        server.start()
        await until(lambda: one.standing is two.standing is Standing.GRANTED)
        assert one.blocks + two.blocks <= BLOCKS
        assert two.blocks == 500
        await until(lambda: one.blocks == 500)
        for each in gateways:
            await each.leave()

    with valkey_server(*options) as server:
        asyncio.run(story(server))


def test_a_store_that_is_stopped_and_goes_on_ends_no_lease(server: ValkeyServer) -> None:
    async def story() -> None:
        first, second = gateway(server), gateway(server)
        one, two = part(first), part(second)
        first.start()
        second.start()
        one.want(BLOCKS, 10, held_blocks=0, held_places=0)
        await until(lambda: one.blocks == BLOCKS)
        one.want(BLOCKS, 10, held_blocks=BLOCKS, held_places=10)
        two.want(BLOCKS, 10, held_blocks=0, held_places=0)
        server.stop()
        await until(lambda: one.standing is Standing.LOST and first.counters.unreachable > 3)
        server.go_on()
        await until(lambda: one.standing is two.standing is Standing.GRANTED)
        assert (one.blocks, two.blocks) == (BLOCKS, 0)
        await asyncio.gather(first.leave(), second.leave())

    asyncio.run(story())


def test_an_emptied_store_learns_what_is_held_before_it_gives_again(server: ValkeyServer) -> None:
    async def story() -> None:
        first, second, third = (gateway(server) for _ in range(3))
        one, two, three = (part(each) for each in (first, second, third))
        first.start()
        second.start()
        one.want(600, 5, held_blocks=0, held_places=0)
        two.want(400, 5, held_blocks=0, held_places=0)
        await until(lambda: (one.blocks, two.blocks) == (600, 400))
        one.want(600, 5, held_blocks=600, held_places=5)
        two.want(400, 5, held_blocks=400, held_places=5)
        server.command("FLUSHALL")
        third.start()
        three.want(BLOCKS, 10, held_blocks=0, held_places=0)
        await until(lambda: three.answer is not None and not three.answer.opens_in_ms)
        assert (one.blocks, two.blocks, three.blocks) == (600, 400, 0)
        assert three.other_blocks == BLOCKS
        one.want(0, 0, held_blocks=0, held_places=0)
        await until(lambda: three.blocks == 600)
        await asyncio.gather(first.leave(), second.leave(), third.leave())

    asyncio.run(story())


SPOILT = (
    (("SET", "KEY", "a string"), "holds a string and not a hash"),
    (("RPUSH", "KEY", "a", "list"), "holds a list and not a hash"),
    (("HSET", "KEY", "clock", "1e99"), "clock is not a number"),
    (("HSET", "KEY", "open_at", "never"), "open_at is not a number"),
    (("HSET", "KEY", "gateway:x", "1 2 3"), "record of a gateway cannot be read"),
    (("HSET", "KEY", "gateway:x", "1 " * 11 + "9" * 5000), "record of a gateway cannot be read"),
    (
        ("HSET", "KEY", "lease_ms", "77", "gateway:x", "1 99999999 1 1 1 1 1 1 1 1 0 e"),
        "other gateways have a lease of 77 ms",
    ),
)


def test_what_others_wrote_into_its_keys_is_named_and_makes_it_careful(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """One instance for each way to spoil its key, and one that is left alone."""

    async def story() -> None:
        one = gateway(server)
        well = part(one, instance="well")
        grants = [part(one, instance=f"engine{index}") for index in range(len(SPOILT))]
        one.start()
        for grant in (well, *grants):
            grant.want(700, 7, held_blocks=0, held_places=0)
        await until(lambda: all(grant.blocks >= 700 for grant in (well, *grants)))
        keys = [f"{QUICK.namespace}:grants:{{engine{index}}}" for index in range(len(SPOILT))]
        for grant, key, (spoil, _) in zip(grants, keys, SPOILT, strict=True):
            grant.want(700, 7, held_blocks=200, held_places=2)
            if spoil[0] != "HSET":
                server.command("DEL", key)
            server.command(*(word.replace("KEY", key) for word in spoil))
        await until(lambda: all(grant.is_careful for grant in grants))
        assert {(grant.blocks, grant.places) for grant in grants} == {(200, 2)}
        await until(lambda: well.blocks >= 700 and not well.is_careful)
        for key in keys:
            server.command("DEL", key)
        await until(lambda: all(grant.blocks >= 700 for grant in grants))
        assert one.counters.errors >= len(SPOILT)
        await one.leave()

    asyncio.run(story())
    for index, (_, says) in enumerate(SPOILT):
        told = [line for line in caplog.messages if f"engine{index}:" in line]
        assert len(told) == 1, "once, however often"
        assert says in told[0]
