"""What is wrong at the door is refused with a 4xx and goes no further; nothing can be hidden behind it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client import CHAT, Answer, ask, gateway_to, read_answer, request, until
from gateway.engine import Call, Engine
from gateway.policies import Places
from vramledger.gateway.settings import Limits, Timeouts

HOST = "Host: g\r\n"
HIDDEN = b"POST /hidden HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n"


def answers_to(
    message: bytes, *, limits: Limits | None = None, timeouts: Timeouts | None = None
) -> tuple[list[Answer], list[str]]:
    """All answers on one connection to which only this was written, and the paths that the engine saw."""

    async def story() -> tuple[list[Answer], list[str]]:
        async with (
            Engine(Call.whole) as engine,
            gateway_to(engine, Places(9), limits=limits, timeouts=timeouts) as gateway,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(message)
            answers = []
            try:
                while True:
                    answers.append(await read_answer(reader))
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            writer.transport.abort()
            return answers, [call.path for call in engine.calls]

    return asyncio.run(story())


@pytest.mark.parametrize(
    "head",
    [
        f"POST /a HTTP/1.1\r\n{HOST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Content-Length: 0\r\nContent-Length: 54\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Content-Length: 0, 54\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Content-Length: +0\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Content-Length : 0\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: identity\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        f"POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0;x\n\r\n",
        "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"GET /a HTTP/1.1\n{HOST}\r\n\r\n",
        f"GET /a HTTP/1.1\r\n{HOST}X: a\r\n folded: b\r\n\r\n",
        f"GET /a HTTP/1.1\r\n{HOST}X: a\0b\r\n\r\n",
        f"GET /a HTTP/1.1\r\n{HOST}X: a\rb\r\n\r\n",
        "GET /a HTTP/1.1\r\n\r\n",
        f"GET /a HTTP/1.1\r\n{HOST}{HOST}\r\n\r\n",
        f"GET http://169.254.169.254/latest HTTP/1.1\r\n{HOST}\r\n\r\n",
        f"GET a HTTP/1.1\r\n{HOST}\r\n\r\n",
        "GET /a HTTP/2.0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_ambiguous_requests_are_refused_and_hide_nothing(head: str) -> None:
    answers, seen = answers_to(head.encode("latin-1") + HIDDEN)
    assert [answer.status for answer in answers] == [400]
    assert answers[0].headers["connection"] == "close"
    assert answers[0].error["type"] == "invalid_request_error"
    assert seen == []


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"CONNECT engine:22 HTTP/1.1\r\nHost: g\r\n\r\n", 405),
        (b"TRACE / HTTP/1.1\r\nHost: g\r\n\r\n", 405),
        (b"SETUP / RTSP/1.0\r\n\r\n", 405),
        (b"GET /a\r\n\r\n", 400),
        (b"POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    ],
)
def test_what_is_not_spoken_is_said_so(message: bytes, status: int) -> None:
    answers, seen = answers_to(message + HIDDEN)
    assert [answer.status for answer in answers] == [status]
    assert seen == []


def test_a_switch_of_protocol_is_served_as_a_plain_request_and_what_follows_is_dropped() -> None:
    upgrade = b"GET /ws HTTP/1.1\r\nHost: g\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    answers, seen = answers_to(upgrade + HIDDEN)
    assert [answer.status for answer in answers] == [200]
    assert seen == ["/ws"]


def test_a_bad_request_behind_a_good_one_waits_for_its_answer() -> None:
    answers, seen = answers_to(
        request("/good") + b"POST /b HTTP/1.1\r\nHost: g\r\nContent-Length: 99999999999\r\n\r\n"
    )
    assert [answer.status for answer in answers] == [200, 413]
    assert seen == ["/good"]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: g\r\n\r\n", 431),
        (b"GET /a HTTP/1.1\r\nHost: g\r\nX: " + b"a" * 5000, 431),
        (b"GET /a HTTP/1.1\r\nHost: g\r\n" + b"X: a\r\n" * 40 + b"\r\n", 431),
        (b"POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 9000\r\n\r\n", 413),
        (b"POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n2710\r\n" + b"a" * 10_000, 413),
        (
            b"POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 9_000,
            431,
        ),
        (
            b"POST /a HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 9_000,
            431,
        ),
    ],
)
def test_sizes_are_bounded(message: bytes, status: int) -> None:
    limits = Limits(head_bytes=4096, headers=32, body_bytes=8192)
    answers, seen = answers_to(message, limits=limits)
    assert [answer.status for answer in answers] == [status]
    assert seen == []


def test_a_body_of_small_chunks_is_within_the_limits() -> None:
    chunks = b"1\r\na\r\n" * 4000
    message = b"POST /a HTTP/1.1\r\nHost: g\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers, _ = answers_to(message + chunks + b"0\r\n\r\n", limits=Limits(head_bytes=4096))
    assert [answer.status for answer in answers] == [200]


def test_an_answer_is_not_lost_under_a_client_that_still_sends() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(9)) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(request(headers="Connection: close\r\n"))
            await until(lambda: len(engine.calls) == 1 and not gateway.in_flight)
            for _ in range(50):  # data for a closed socket would reset the connection
                writer.write(b"x" * 1000)
                await asyncio.sleep(0.002)
            answer = await read_answer(reader)
            assert (answer.status, answer.complete, await reader.read()) == (200, True, b"")
            writer.close()
            await until(lambda: not gateway.connections)

    asyncio.run(story())


def test_too_many_requests_ahead_end_the_connection() -> None:
    answers, seen = answers_to(request("/a", headers="") * 40, limits=Limits(pipelined=8))
    assert len(answers) <= 9
    assert len(seen) <= 8


@pytest.mark.parametrize("part", [b"", b"POST /a HT", request()[:-5]])
def test_a_request_that_does_not_arrive_in_time(part: bytes) -> None:
    answers, seen = answers_to(part, timeouts=Timeouts(head_ms=50, body_ms=50))
    assert [answer.status for answer in answers] == ([408] if part else [])
    assert seen == []


@pytest.mark.parametrize("first", [b"", request("/first")])
@pytest.mark.parametrize(
    "part", [b"POST /a HTTP/1.1\r\n", b"POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 9999\r\n\r\n"]
)
def test_a_request_that_dribbles_is_not_waited_for(first: bytes, part: bytes) -> None:
    """Each byte comes in time; the request does not. Its beginning may have come with the request before it."""

    async def story() -> None:
        timeouts = Timeouts(head_ms=100, body_ms=100, idle_ms=100)
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(1), timeouts=timeouts) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(first + part)
            if first:
                assert (await read_answer(reader)).status == 200
            answer = asyncio.create_task(read_answer(reader))
            while not answer.done():
                writer.write(b"X")
                await asyncio.sleep(0.01)
            assert (await answer).status == 408
            writer.transport.abort()
            await until(lambda: not gateway.connections)

    asyncio.run(story())


def test_all_bodies_together_are_bounded() -> None:
    async def story() -> None:
        limits = Limits(held_body_bytes=1000)
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(1), limits=limits) as gateway:
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(b"POST /a HTTP/1.1\r\nHost: g\r\nContent-Length: 950\r\n\r\n" + b"a" * 940)
            await until(lambda: gateway.held.bytes == 940)
            answer = await ask(gateway.port, request())
            assert (answer.status, answer.error["code"]) == (503, "bodies-held")
            writer.transport.abort()
            await until(lambda: gateway.held.bytes == 0)
            assert (await ask(gateway.port, request())).status == 200

    asyncio.run(story())


def test_connections_are_bounded() -> None:
    async def script(call: Call) -> None:
        await call.left()

    async def story() -> None:
        limits = Limits(connections=2)
        async with Engine(script) as engine, gateway_to(engine, Places(2), limits=limits) as gateway:
            busy = [(await asyncio.open_connection("127.0.0.1", gateway.port))[1] for _ in range(2)]
            for writer in busy:
                writer.write(request())
            await until(lambda: engine.working == 2)
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            assert await reader.read() == b""
            assert gateway.counters.connections_refused == 1
            for each in (*busy, writer):
                each.transport.abort()

    asyncio.run(story())


@pytest.mark.parametrize(
    "said", [b"", b"GET / HT", request()[:-5]], ids=("nothing", "a head's beginning", "a body's")
)
def test_nobody_keeps_others_out_by_saying_little(said: bytes) -> None:
    async def story() -> None:
        limits = Limits(connections=3)
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(9), limits=limits) as gateway:
            silent = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(2)]
            for _, each in silent:
                each.write(said)
            await until(lambda: len(gateway.connections) == 2)
            served, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(request())
            assert (await read_answer(served)).status == 200
            for _ in range(4):
                assert (await ask(gateway.port, request())).status == 200
            assert gateway.counters.connections_refused >= 1
            for _, each in (*silent, (served, writer)):
                each.transport.abort()

    asyncio.run(story())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"a"',
        b"\xff",
        b"[" * 100_000,
        b'{"max_tokens": 1e99}',
        b'{"n": "x"}',
        b'{"n": -3}',
    ],
)
def test_a_body_that_cannot_be_priced(body: bytes) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    answers, seen = answers_to(head.encode() + body)
    assert [(answer.status, answer.error["code"]) for answer in answers] == [(400, "bad-body")]
    assert seen == []


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from(
                [
                    b"POST /v1/chat/completions HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n", b"Host: g\r\n", b"\r\n", b"\r\n\r\n",
                    b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b"2\r\n{}\r\n", b"0\r\n\r\n", b"{}",
                    b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n",
                ]
            ),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_whatever_is_written_no_answer_is_worse_than_a_4xx(parts: list[bytes]) -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(9)) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            said = b""
            # What comes after a refusal may find the connection reset.
            with suppress(OSError):
                for part in parts:
                    writer.write(part)
                    await asyncio.sleep(0)
                writer.write_eof()
            with suppress(ConnectionError):
                while piece := await reader.read(65_536):
                    said += piece
            for line in said.split(b"\r\n"):
                if line.startswith(b"HTTP/1.1 "):
                    assert int(line.split(b" ")[1]) < 500
            writer.transport.abort()

    asyncio.run(story())
