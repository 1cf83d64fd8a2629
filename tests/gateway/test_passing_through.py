"""What goes in comes out: requests and answers of every form, untouched but for what belongs to one hop."""

from __future__ import annotations

import asyncio
import json

from msgspec.structs import replace

from gateway.client import CHAT, ask, gateway_to, read_answer, request, until
from gateway.engine import ANSWER, DONE, USAGE, WORD, Call, Engine, event
from gateway.policies import Places, Says
from vramledger.gateway.admitter import Decision, Ended, Ending, Kind, Verdict
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.settings import Limits, Upstream


def test_a_whole_answer_and_its_usage() -> None:
    async def story() -> None:
        policy = Places(1)
        async with Engine(Call.whole) as engine, gateway_to(engine, policy) as gateway:
            answer = await ask(gateway.port, request(max_tokens=5))
            assert (answer.status, answer.body, answer.complete) == (200, ANSWER, True)
            assert answer.headers["x-vramledger-rule"] == "fits"
            assert json.loads(engine.calls[0].body)["max_tokens"] == 5
        facts = policy.facts[1]
        assert (facts.kind, facts.model, facts.prompt_bytes) == (Kind.CHAT, "m", len("userhello"))
        assert (facts.max_output_tokens, facts.branches, facts.stream) == (5, 1, False)
        assert policy.endings == {
            1: Ending(how=Ended.COMPLETED, prompt_tokens=11, cached_prompt_tokens=7, output_tokens=3)
        }

    asyncio.run(story())


def test_a_stream_and_its_usage() -> None:
    async def script(call: Call) -> None:
        await call.stream(WORD, WORD, event({"choices": [], "usage": USAGE}), DONE)

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            answer = await ask(gateway.port, request(stream=True))
            assert answer.body == WORD + WORD + event({"choices": [], "usage": USAGE}) + DONE
            assert answer.complete
        assert policy.endings[1].output_tokens == 3
        assert not policy.endings[1].counted

    asyncio.run(story())


def test_a_stream_without_usage_is_counted() -> None:
    async def script(call: Call) -> None:
        await call.stream(WORD, WORD, WORD, WORD, DONE)

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            await ask(gateway.port, request(stream=True))
        assert policy.endings[1].first_output_ns is not None
        assert replace(policy.endings[1], first_output_ns=None) == Ending(
            how=Ended.COMPLETED, output_tokens=4, counted=True, output_events=4
        )


def test_each_goes_to_the_engine_that_the_policy_named_and_what_is_not_priced_to_a_healthy_one() -> None:
    class Second(Says):
        def healthy_instance(self) -> int:
            return 0

    async def story() -> None:
        second = Second(Decision(verdict=Verdict.ADMIT, rule="fits", instance=1))
        async with Engine(Call.whole) as one, Engine(Call.whole) as other:
            upstreams = [Upstream(host="127.0.0.1", port=engine.port) for engine in (one, other)]
            gateway = Gateway(upstreams, second)
            await gateway.start("127.0.0.1", 0)
            try:
                await ask(gateway.port, request())
                await ask(gateway.port, request("/v1/models", method="GET"))
            finally:
                await gateway.close()
            assert [call.path for call in one.calls] == ["/v1/models"]
            assert [call.path for call in other.calls] == [CHAT]
            assert f"host: 127.0.0.1:{other.port}".encode() in other.calls[0].head

    asyncio.run(story())

    asyncio.run(story())


def test_pieces_arrive_as_they_are_sent() -> None:
    async def story() -> None:
        go_on = asyncio.Event()

        async def script(call: Call) -> None:
            await call.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + WORD)
            await go_on.wait()
            await call.write(DONE)
            call.writer.close()

        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(request(stream=True))
            assert WORD in await reader.readuntil(WORD)  # while the engine still waits
            go_on.set()
            assert (await reader.readuntil(b"0\r\n\r\n")).count(DONE) == 1
            writer.close()
        assert policy.endings[1].how is Ended.COMPLETED

    asyncio.run(story())


def test_other_paths_pass_unpriced_with_any_method() -> None:
    async def script(call: Call) -> None:
        await call.whole(b"ok", more=b"X-Engine: e\r\nConnection: X-Hop\r\nX-Hop: 1\r\n")

    async def story() -> None:
        policy = Places(0)  # would admit nothing
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH", "POST"):
                answer = await ask(
                    gateway.port,
                    request(
                        "/v1/models?a=%2e&b",
                        method=method,
                        headers="X-Mine: 1\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nTE: trailers\r\n",
                    ),
                )
                assert (answer.status, answer.body) == (200, b"ok")
                assert answer.headers["x-engine"] == "e"
                assert "x-hop" not in answer.headers
                head = engine.calls[-1].head
                assert head.startswith(f"{method} /v1/models?a=%2e&b HTTP/1.1\r\n".encode())
                assert b"x-mine: 1\r\n" in head
                assert b"host: 127.0.0.1:%d\r\n" % engine.port in head
                for hop in (b"x-hop", b"\r\nte:", b"keep-alive", b"gateway"):
                    assert hop not in head
        assert not policy.facts

    asyncio.run(story())


def test_answers_without_a_body() -> None:
    async def script(call: Call) -> None:
        if call.head.startswith(b"HEAD"):
            await call.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
        elif call.path == "/304":
            await call.write(b"HTTP/1.1 304 Not Modified\r\nETag: e\r\n\r\n")
        else:
            await call.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")

    async def story() -> None:
        async with Engine(script) as engine, gateway_to(engine, Places(1)) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            for path, method, status in (("/", "HEAD", 200), ("/304", "GET", 304), ("/204", "GET", 204)) * 2:
                writer.write(request(path, method=method))
                answer = await read_answer(reader, has_body=False)
                assert answer.status == status
                assert answer.headers.get("content-length") == ("99" if method == "HEAD" else None)
            writer.close()

    asyncio.run(story())


def test_a_chunked_request_is_sent_with_its_length() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(1)) as gateway:
            parts = (b'{"messages": "a', b'b", "max_tokens": 3}')
            message = f"POST {CHAT} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(message.encode())
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            for part in parts:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            writer.write(b"0\r\nX-Trailer: smuggled\r\n\r\n")
            assert (await read_answer(reader)).status == 200
            assert engine.calls[0].body == b"".join(parts)
            head = engine.calls[0].head
            assert head.count(b"content-length: %d\r\n" % len(b"".join(parts))) == 1
            assert b"chunked" not in head
            assert b"expect" not in head
            assert b"trailer" not in head
            writer.close()

    asyncio.run(story())


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def script(call: Call) -> None:
        await call.whole(call.path.encode())

    async def story() -> None:
        async with Engine(script) as engine, gateway_to(engine, Places(1)) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(b"".join(request(f"/{number}") for number in range(10)))
            for number in range(10):
                assert (await read_answer(reader)).body == f"/{number}".encode()
            writer.close()
        assert engine.connections == 1

    asyncio.run(story())


def test_an_old_client_gets_its_answer_until_the_connection_closes() -> None:
    async def script(call: Call) -> None:
        await call.stream(WORD, DONE)

    async def story() -> None:
        async with Engine(script) as engine, gateway_to(engine, Places(1)) as gateway:
            answer = await ask(gateway.port, request(version="1.0", stream=True))
            assert answer.body == WORD + DONE
            assert "transfer-encoding" not in answer.headers

    asyncio.run(story())


def test_a_slow_reader_holds_the_engine_up_and_nothing_piles_up() -> None:
    piece = b"x" * 65_536
    pieces = 400

    async def story() -> None:
        sent = 0

        async def script(call: Call) -> None:
            nonlocal sent
            await call.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * pieces))
            for _ in range(pieces):
                await call.write(piece)
                sent += 1

        async with Engine(script) as engine, gateway_to(engine, Places(1)) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=4096)
            writer.write(request("/large"))
            before = -1
            while sent != before:  # until it stands still
                before = sent
                await asyncio.sleep(0.2)
            # What fits the buffers of three sockets and of the gateway, and no more: most of it is still with the engine.
            assert sent < pieces
            transport = next(iter(gateway.connections))._transport
            assert transport is not None
            assert transport.get_write_buffer_size() < Limits().write_buffer_bytes + 2 * 262_144
            answer = await read_answer(reader)
            assert len(answer.body) == len(piece) * pieces
            assert sent == pieces
            writer.close()

    asyncio.run(story())


def test_a_reader_that_lags_behind_a_complete_answer_holds_nobody_else_up() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(1)) as gateway:
            _, lags = await asyncio.open_connection("127.0.0.1", gateway.port)
            await until(lambda: bool(gateway.connections))
            next(
                iter(gateway.connections)
            ).pause_writing()  # as its transport does when the client reads nothing
            lags.write(request())
            await until(lambda: gateway.pool.idle_connections == 1)
            assert (await ask(gateway.port, request())).status == 200
            assert engine.connections == 1
            lags.transport.abort()

    asyncio.run(story())
