"""An engine that dies, hangs, closes what was idle, or fails inside an answer that began well: always told, never waited for."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client import ask, gateway_to, read_answer, request, until
from gateway.engine import DONE, EVENT_STREAM, WORD, Call, Engine, event
from gateway.policies import Places
from vramledger.gateway.admitter import Ended
from vramledger.gateway.settings import Timeouts


def test_an_engine_that_is_not_there() -> None:
    async def story() -> None:
        policy = Places(1)
        async with Engine(Call.whole) as engine, gateway_to(engine, policy) as gateway:
            engine.stop_listening()
            answer = await ask(gateway.port, request())
            assert (answer.status, answer.error["code"]) == (503, "upstream-unreachable")
            assert "refuses connections" in str(answer.error["message"])
        assert policy.endings[1].how is Ended.UPSTREAM_FAILED

    asyncio.run(story())


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])
def test_an_engine_that_dies_before_its_answer(said: bytes) -> None:
    async def script(call: Call) -> None:
        await call.write(said)
        call.writer.close()

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            answer = await ask(gateway.port, request())
            assert (answer.status, answer.error["code"]) == (502, "upstream-failed")
            assert len(engine.calls) == 1  # a new connection: there is nothing to repeat
            assert gateway.counters.upstream_failures == 1
        assert policy.endings[1].how is Ended.UPSTREAM_FAILED

    asyncio.run(story())


def test_an_engine_that_dies_inside_a_stream() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        await call.chunk(b'data: {"choi')
        call.writer.transport.abort()

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            answer = await ask(gateway.port, request(stream=True))
            assert answer.status == 200
            assert not answer.complete
            *_, last, _ = answer.body.split(b"\n\n")
            assert b'"code":"upstream-failed"' in last.removeprefix(b"data: ")
            await until(lambda: len(policy.endings) == 1)
            assert gateway.counters.truncated_answers == 1
        assert policy.endings[1].how is Ended.UPSTREAM_FAILED
        assert policy.endings[1].output_tokens == 1

    asyncio.run(story())


def test_an_answer_that_is_cut_is_seen_to_be_cut() -> None:
    async def script(call: Call) -> None:
        await call.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        call.writer.close()

    async def story() -> None:
        async with Engine(script) as engine, gateway_to(engine, Places(1)) as gateway:
            answer = await ask(gateway.port, request())
            assert not answer.complete

    asyncio.run(story())


@pytest.mark.parametrize(
    "error",
    [
        # vLLM over its bound of queued requests; llama.cpp out of context; vLLM's older form; the responses API.
        event({"error": {"message": "too many", "type": "ServiceUnavailable", "code": 503}}),
        event({"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}),
        b'error: {"code":500,"message":"Context size has been exceeded.","type":"server_error"}\n\n',
        event({"object": "error", "message": "x", "type": "InternalServerError", "code": 500}),
        event({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}),
        b"event: error\ndata: gone\n\n",
    ],
)
def test_an_error_inside_a_stream_is_passed_on_and_counted(error: bytes) -> None:
    async def script(call: Call) -> None:
        await call.stream(WORD, error, DONE)

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            answer = await ask(gateway.port, request(stream=True))
            assert answer.body == WORD + error + DONE
            assert gateway.counters.engine_errors_in_streams == gateway.counters.engine_errors == 1
        assert policy.endings[1].how is Ended.ENGINE_ERROR

    asyncio.run(story())


def test_an_engines_own_refusal_is_passed_on() -> None:
    body = b'{"error": {"message": "too long", "type": "BadRequestError", "code": 400}}'

    async def script(call: Call) -> None:
        await call.whole(body, b"400 Bad Request")

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            answer = await ask(gateway.port, request())
            assert (answer.status, answer.body) == (400, body)
            assert gateway.counters.engine_errors == 0  # it was the client's
        assert policy.endings[1].how is Ended.ENGINE_ERROR

    asyncio.run(story())


def test_a_pooled_connection_that_the_engine_closed_is_not_used() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(1)) as gateway:
            for turn in range(3):
                assert (await ask(gateway.port, request())).status == 200
                engine.drop_connections()
                await until(lambda: not gateway.pool.open_connections)
                assert engine.connections == turn + 1
            assert gateway.counters.upstream_retries == 0

    asyncio.run(story())


def test_a_connection_closed_while_a_request_was_on_its_way_is_tried_once_more() -> None:
    async def script(call: Call) -> None:
        if sum(one.writer is call.writer for one in calls) >= 1:
            call.writer.transport.abort()  # never a second request on a connection
        else:
            calls.append(call)
            await call.whole()

    calls: list[Call] = []

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            for _ in range(3):
                assert (await ask(gateway.port, request())).status == 200
            assert gateway.counters.upstream_retries == 2
            assert engine.connections == 3
            # What may have had an effect is not repeated.
            answer = await ask(gateway.port, request("/v1/load_lora_adapter"))
            assert (answer.status, answer.error["code"]) == (502, "upstream-failed")
            assert gateway.counters.upstream_retries == 2
        assert {ending.how for ending in policy.endings.values()} == {Ended.COMPLETED}

    asyncio.run(story())


def test_idle_connections_are_given_up_before_the_engine_closes_them() -> None:
    async def script(call: Call) -> None:
        await call.whole(more=b"Keep-Alive: timeout=1, max=100\r\n")

    async def story() -> None:
        async with Engine(script) as engine, gateway_to(engine, Places(1)) as gateway:
            for _ in range(2):
                await ask(gateway.port, request())
            assert engine.connections == 2
            await until(lambda: not gateway.pool.idle_connections)

    asyncio.run(story())


def test_bytes_that_nobody_asked_for_end_a_connection() -> None:
    async def script(call: Call) -> None:
        await call.whole()
        await call.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nothers")

    async def story() -> None:
        async with Engine(script) as engine, gateway_to(engine, Places(1)) as gateway:
            for _ in range(3):
                answer = await ask(gateway.port, request())
                assert b"others" not in answer.body
                await until(lambda: not gateway.pool.open_connections)

    asyncio.run(story())


def test_an_engine_that_never_answers() -> None:
    async def script(call: Call) -> None:
        await call.left()

    async def story() -> None:
        policy = Places(1)
        timeouts = Timeouts(first_byte_ms=50)
        async with Engine(script) as engine, gateway_to(engine, policy, timeouts=timeouts) as gateway:
            answer = await ask(gateway.port, request())
            assert (answer.status, answer.error["type"]) == (504, "timeout_error")
            await until(lambda: engine.working == 0)
        assert policy.endings[1].how is Ended.TIMED_OUT

    asyncio.run(story())


def test_an_engine_that_falls_silent_inside_a_stream() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        await call.left()

    async def story() -> None:
        policy = Places(1)
        timeouts = Timeouts(silence_ms=50)
        async with Engine(script) as engine, gateway_to(engine, policy, timeouts=timeouts) as gateway:
            answer = await ask(gateway.port, request(stream=True))
            assert not answer.complete
            assert b"upstream-timeout" in answer.body
            await until(lambda: engine.working == 0)
        assert policy.endings[1].how is Ended.TIMED_OUT

    asyncio.run(story())


def test_a_client_that_reads_nothing_is_given_up() -> None:
    async def script(call: Call) -> None:
        await call.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while True:
            await call.write(b"x" * 65_536)

    async def story() -> None:
        policy = Places(1)
        timeouts = Timeouts(stalled_reader_ms=50)
        async with Engine(script) as engine, gateway_to(engine, policy, timeouts=timeouts) as gateway:
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=4096)
            writer.write(request())
            await until(lambda: len(policy.endings) == 1)
            await until(lambda: engine.working == 0)
            assert gateway.counters.stalled_readers == 1
            writer.transport.abort()
        assert policy.endings[1].how is Ended.CLIENT_LEFT

    asyncio.run(story())


def test_the_gateway_serves_on_after_its_engine_came_back() -> None:
    async def story() -> None:
        policy = Places(4)
        async with Engine(Call.whole) as engine, gateway_to(engine, policy) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            for script, status in ((Call.whole, 200), (_die, 502), (Call.whole, 200)):
                engine.script = script
                writer.write(request())
                assert (await read_answer(reader)).status == status
            writer.close()
        assert not policy.held

    asyncio.run(story())


async def _die(call: Call) -> None:
    call.writer.transport.abort()
