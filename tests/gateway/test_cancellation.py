"""Clients leave at any moment: the engine's work stops, and every reservation comes back exactly once."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest

from gateway.client import ask, gateway_to, read_answer, request, until
from gateway.engine import DONE, EVENT_STREAM, WORD, Call, Engine
from gateway.policies import Places
from vramledger.gateway.admitter import Ended
from vramledger.gateway.messages import ResponseHead


async def _hold(call: Call) -> None:
    await call.left()


async def _stream_for_ever(call: Call) -> None:
    await call.write(EVENT_STREAM)
    while True:
        await call.chunk(WORD)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("script", [_hold, _stream_for_ever])
@pytest.mark.parametrize("politely", [True, False])
def test_a_client_that_leaves_stops_the_engine(script: object, politely: bool) -> None:
    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:  # type: ignore[arg-type]
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(request(stream=True))
            await until(lambda: engine.working == 1)
            if script is _stream_for_ever:
                await reader.readuntil(WORD)
            if politely:
                writer.write_eof()  # half closed: it will not speak again
            else:
                writer.transport.abort()
            await until(lambda: engine.working == 0)
            await until(lambda: len(policy.endings) == 1)
            assert gateway.counters.clients_left == 1
            writer.transport.abort()
        ending = policy.endings[1]
        assert ending.how is Ended.CLIENT_LEFT
        assert ending.counted is (script is _stream_for_ever)  # what it had produced is told

    asyncio.run(story())


def test_a_client_that_sends_no_more_and_reads_nothing_is_gone() -> None:
    async def script(call: Call) -> None:
        await call.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while True:
            await call.write(b"x" * 65_536)

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=4096)
            writer.write(request())
            await until(lambda: any(connection.is_paused for connection in gateway.connections))
            writer.write_eof()
            await until(lambda: len(policy.endings) == 1)
            await until(lambda: engine.working == 0)
            assert not gateway.connections
            writer.transport.abort()
        assert policy.endings[1].how is Ended.CLIENT_LEFT

    asyncio.run(story())


def test_a_client_that_leaves_the_queue_makes_room_in_it() -> None:
    async def story() -> None:
        policy = Places(1)
        async with Engine(_hold) as engine, gateway_to(engine, policy) as gateway:
            writers = []
            for number in range(3):
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                writer.write(request())
                writers.append(writer)
                await until(partial(policy.knows, number + 1))
            writers[1].transport.abort()
            await until(lambda: gateway.desk.waiting == 1)
            assert policy.line == [3]
            writers[0].transport.abort()
            await until(lambda: policy.held == {3})
            await until(lambda: len(engine.calls) == 2)
            writers[2].transport.abort()
            await until(lambda: len(policy.endings) == 3)
        assert {ending.how for ending in policy.endings.values()} == {Ended.CLIENT_LEFT}

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_after_many_clients_came_and_went(seed: int) -> None:
    """Clients that stay, leave while they send, wait, or read; an engine that answers, streams, fails and dies."""
    random = Random(seed)
    clients, places = 150, 5
    moods = [random.randrange(8) for _ in range(clients * 3)]

    async def script(call: Call) -> None:
        mood = moods[len(engine.calls) % len(moods)]
        await asyncio.sleep(mood * 0.001)
        if mood == 0:
            call.writer.transport.abort()
        elif mood == 1:
            await call.write(EVENT_STREAM)
            await call.chunk(WORD)
            call.writer.transport.abort()
        elif mood == 2:
            await call.whole(b"{}", b"500 Internal Server Error")
        elif mood < 5:
            await call.whole()
        else:
            await call.write(EVENT_STREAM)
            for _ in range(mood):
                await call.chunk(WORD)
                await asyncio.sleep(0.001)
            await call.chunk(DONE)
            await call.write(b"0\r\n\r\n")

    async def client(port: int) -> None:
        await asyncio.sleep(random.random() * 0.3)
        message = request(stream=bool(random.randrange(2)))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in range(random.randrange(1, 4)):
                stays = random.random() < 0.4
                writer.write(message if stays else message[: random.randrange(len(message) * 3)])
                if not stays:
                    await asyncio.sleep(random.random() * 0.05)
                    return
                answer = await read_answer(reader)
                assert answer.status in (200, 429, 500, 502)
                answered.append(answer.status)
                if not answer.complete or answer.headers.get("connection") == "close":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            raise AssertionError("a client that stayed had no answer") from None
        finally:
            writer.transport.abort()

    answered: list[int] = []
    policy = Places(places)
    engine = Engine(script)

    async def story() -> None:
        async with engine, gateway_to(engine, policy) as gateway:
            await asyncio.wait_for(asyncio.gather(*(client(gateway.port) for _ in range(clients))), 60)
            await until(lambda: not gateway.connections)
            await until(lambda: engine.working == 0)
            assert not policy.held
            assert not policy.line
            assert policy.endings.keys() == policy.facts.keys()
            assert gateway.counters.released == len(policy.facts)
            assert gateway.counters.policy_failures == 0
            assert gateway.desk.admitted == gateway.desk.waiting == gateway.in_flight == 0
            assert gateway.held.bytes == 0
            assert (await ask(gateway.port, request("/after"))).status in (200, 500, 502)

    asyncio.run(story())
    assert policy.most_held == places
    assert len(answered) > 20
    hows = {ending.how for ending in policy.endings.values()}
    assert {Ended.COMPLETED, Ended.CLIENT_LEFT, Ended.ENGINE_ERROR, Ended.UPSTREAM_FAILED} <= hows


def test_closing_the_gateway_ends_everything_at_once() -> None:
    async def story() -> None:
        policy = Places(2)
        async with Engine(_stream_for_ever) as engine:
            async with gateway_to(engine, policy) as gateway:
                writers = []
                for _ in range(4):
                    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                    writer.write(request(stream=True))
                    writers.append(writer)
                await until(lambda: engine.working == 2)
                await until(lambda: gateway.desk.waiting == 2)
            await until(lambda: engine.working == 0)
            assert not policy.held
            assert not policy.line
            assert [ending.how for ending in policy.endings.values()] == [Ended.DRAINED] * 4
            for writer in writers:
                writer.transport.abort()

    asyncio.run(story())


class Notes:
    """A receiver that notes how its answer ended."""

    def __init__(self) -> None:
        self.ended = ""

    def answer_began(self, head: ResponseHead) -> None: ...

    def answer_body(self, data: bytes) -> None: ...

    def answer_flush(self) -> None: ...

    def answer_ended(self) -> None:
        self.ended = "well"

    def answer_failed(self, reason: str, *, silent: bool) -> None:
        self.ended = reason


def test_who_leaves_late_takes_nobody_elses_connection_away() -> None:
    """A client's leaving may be noticed after its answer ended, when its connection already serves the next request."""

    async def story() -> None:
        message = b"GET / HTTP/1.1\r\nHost: e\r\n\r\n"
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(1)) as gateway:
            late, next_one, last = Notes(), Notes(), Notes()
            connection = await gateway.pool.take()
            connection.send(message, late, has_body=True)
            await until(lambda: late.ended == "well")
            assert await gateway.pool.take() is connection
            connection.send(message, next_one, has_body=True)
            connection.leave(late)
            await until(lambda: next_one.ended == "well")
            assert await gateway.pool.take() is connection
            connection.send(message, last, has_body=True)
            gateway.pool.close()  # whoever is served is told
            assert last.ended == "the gateway closed the connection"

    asyncio.run(story())
