"""The gateway's own questions to an engine: answered, bounded, cancelled; and no connection is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.client import until
from gateway.engine import Call, Engine
from vramledger.gateway.settings import Upstream
from vramledger.gateway.upstream_asking import AskingFailed, EngineAnswer, UpstreamAsking


@asynccontextmanager
async def asking(engine: Engine, *, most_open: int = 4) -> AsyncIterator[UpstreamAsking]:
    one = UpstreamAsking(
        Upstream(host="127.0.0.1", port=engine.port, authorization=b"Bearer key"),
        most_open=most_open,
        headers=[(b"x-more", b"1")],
    )
    try:
        yield one
    finally:
        one.close()
        await until(lambda: one.open_connections == 0)


def test_an_answer_is_given_whole_and_connections_serve_again() -> None:
    async def script(call: Call) -> None:
        if call.path == "/metrics":
            await call.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await call.chunk(b"a 1\n")
            await call.chunk(b"b 2\n")
            await call.write(b"0\r\n\r\n")
        else:
            await call.whole(call.body, status=b"404 Not Found")

    async def run() -> None:
        async with Engine(script) as engine, asking(engine) as one:
            assert await one.ask(b"GET", b"/metrics", within_ms=30_000) == EngineAnswer(200, b"a 1\nb 2\n")
            assert await one.ask(b"POST", b"/tokenize", b"{}", within_ms=30_000) == EngineAnswer(404, b"{}")
            assert engine.connections == 1
            head = engine.calls[1].head.lower()
            for line in (
                b"authorization: bearer key",
                b"x-more: 1",
                b"content-type: application/json",
                b"content-length: 2",
            ):
                assert line in head.split(b"\r\n")

    asyncio.run(run())


def test_no_more_than_so_many_are_asked_at_once() -> None:
    most = 0

    async def run() -> None:
        async def script(call: Call) -> None:
            nonlocal most
            most = max(most, engine.working)
            await asyncio.sleep(0.01)
            await call.whole()

        async with Engine(script) as engine, asking(engine, most_open=2) as one:
            await asyncio.gather(*(one.ask(b"GET", b"/", within_ms=30_000) for _ in range(7)))
            assert (most, engine.connections) == (2, 2)

    asyncio.run(run())


@pytest.mark.parametrize("told", [True, False])
def test_a_large_answer_is_not_taken_in(told: bool) -> None:
    async def script(call: Call) -> None:
        length = b"Content-Length: 99999999\r\n" if told else b""
        await call.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        while True:
            await call.write(b"x" * 4096)

    async def run() -> None:
        async with Engine(script) as engine, asking(engine) as one:
            with pytest.raises(AskingFailed, match="too large"):
                await one.ask(b"GET", b"/", within_ms=30_000, most_bytes=10_000)
            await until(lambda: one.open_connections == 0 and engine.working == 0)

    asyncio.run(run())


def test_a_silent_engine_is_left_in_time_and_so_is_one_whose_asker_went() -> None:
    async def run() -> None:
        async with Engine(Call.left) as engine, asking(engine, most_open=1) as one:
            with pytest.raises(AskingFailed, match="within 50 ms"):
                await one.ask(b"GET", b"/", within_ms=50)
            await until(lambda: one.open_connections == 0 and engine.working == 0)
            # One has its turn and one waits for it.
            tasks = [asyncio.create_task(one.ask(b"GET", b"/", within_ms=30_000)) for _ in range(2)]
            await until(lambda: engine.working == 1)
            for task in reversed(tasks):
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [asyncio.CancelledError] * 2
            await until(lambda: one.open_connections == 0 and engine.working == 0)

    asyncio.run(run())


def test_a_pooled_connection_that_was_closed_is_replaced_and_a_broken_answer_is_not_asked_again() -> None:
    answered: list[str] = []

    async def script(call: Call) -> None:
        answered.append(call.path)
        if call.path == "/cut":
            await call.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
            call.writer.transport.abort()
        elif call.path == "/last":
            await call.whole()
        elif len(answered) == 2:
            call.writer.transport.abort()  # it was about to close it when the question came
        else:
            await call.whole()

    async def run() -> None:
        async with Engine(script) as engine, asking(engine) as one:
            assert (await one.ask(b"GET", b"/last", within_ms=30_000)).status == 200
            assert (await one.ask(b"GET", b"/", within_ms=30_000)).status == 200
            assert (answered, engine.connections) == (["/last", "/", "/"], 2)
            with pytest.raises(AskingFailed, match=r"closed|broke"):
                await one.ask(b"GET", b"/cut", within_ms=30_000)
            assert answered[3:] == ["/cut"]

    asyncio.run(run())


def test_an_engine_that_is_not_there_is_named_so() -> None:
    async def run() -> None:
        async with Engine(Call.whole) as engine, asking(engine) as one:
            engine.stop_listening()
            with pytest.raises(AskingFailed, match="refuses"):
                await one.ask(b"GET", b"/", within_ms=30_000)

    asyncio.run(run())


def test_closing_ends_what_is_asked() -> None:
    async def run() -> None:
        async with Engine(Call.left) as engine, asking(engine) as one:
            task = asyncio.create_task(one.ask(b"GET", b"/", within_ms=30_000))
            await until(lambda: engine.working == 1)
            one.close()
            with pytest.raises(AskingFailed):
                await task
            with pytest.raises(AskingFailed, match="stopped"):
                await one.ask(b"GET", b"/", within_ms=30_000)

    asyncio.run(run())
