"""The processor itself, spoken to by gRPC as Envoy speaks, and as nobody should: without Envoy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from gateway.client import until
from gateway.envoy_messages import EXCHANGE, REQUEST_BODY, REQUEST_HEADERS, RESPONSE_BODY, RESPONSE_HEADERS
from gateway.policies import Places
from vramledger.errors import InputError
from vramledger.gateway.admitter import Ended
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk
from vramledger.gateway.envoy import wire
from vramledger.gateway.envoy.ext_proc import ProcessorTls, serve_ext_proc
from vramledger.gateway.envoy.server import ExtProcServer
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.record import RequestRecord

GO_ON = {
    REQUEST_HEADERS: b"\x0a\x04\x0a\x02\x12\x00",
    REQUEST_BODY: b"\x1a\x04\x0a\x02\x12\x00",
    RESPONSE_BODY: b"\x22\x04\x0a\x02\x12\x00",
}
METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


class Speaker:
    """Envoy's side of one connection."""

    def __init__(self, processor: ExtProcServer, desk: AdmissionDesk, channel: grpc.aio.Channel) -> None:
        self.processor = processor
        self.desk = desk
        self.channel = channel

    def stream(self) -> Any:
        return self.channel.stream_stream(METHOD)()

    async def exchange(self, call: Any, message: bytes) -> Any:
        async with asyncio.timeout(30):
            await call.write(message)
            return await call.read()

    def is_empty(self) -> bool:
        return self.desk.admitted == self.desk.waiting == self.processor.open_streams == 0


@asynccontextmanager
async def spoken_to(policy: Places, **more: Any) -> AsyncIterator[Speaker]:
    counters = Counters()
    desk = AdmissionDesk(policy, queued=9, queued_ms=60_000, clock_ns=time.monotonic_ns, counters=counters)
    processor = await serve_ext_proc(desk, "127.0.0.1:0", counters=counters, **more)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{processor.port}") as channel:
            yield Speaker(processor, desk, channel)
    finally:
        await processor.close()
    assert desk.admitted == desk.waiting == processor.open_streams == processor.held_bytes == 0
    assert not policy.held
    assert not policy.line


def test_the_recorded_exchange_is_answered_message_by_message() -> None:
    async def story() -> None:
        policy = Places(1)
        async with spoken_to(policy) as envoy:
            call = envoy.stream()
            for message in EXCHANGE:
                answer = await envoy.exchange(call, message)
                if message is RESPONSE_HEADERS:
                    assert b"x-vramledger-rule\x1a\x04fits" in answer
                else:
                    assert answer == GO_ON[message]
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
        ending = policy.endings[1]
        assert (ending.how, ending.output_tokens, ending.counted) == (Ended.COMPLETED, 1, True)

    asyncio.run(story())


@pytest.mark.parametrize("said", range(1, 4))
@pytest.mark.parametrize("how", ["cancelled", "half-closed"])
def test_a_stream_that_ends_gives_back_wherever_it_stood(said: int, how: str) -> None:
    async def story() -> None:
        policy = Places(1)
        async with spoken_to(policy) as envoy:
            call = envoy.stream()
            for message in EXCHANGE[:said]:
                await envoy.exchange(call, message)
            waiting = envoy.stream()
            await envoy.exchange(waiting, REQUEST_HEADERS)
            if said > 1:
                await waiting.write(REQUEST_BODY)
                await until(lambda: envoy.desk.waiting == 1)
            for one in (waiting, call):
                if how == "cancelled":
                    one.cancel()
                else:
                    await one.done_writing()
            await until(envoy.is_empty)
        assert len(policy.endings) == (2 if said > 1 else 0)
        assert {ending.how for ending in policy.endings.values()} <= {Ended.CLIENT_LEFT}

    asyncio.run(story())


def test_a_queued_request_asks_for_time_and_is_let_in_on_the_same_stream() -> None:
    async def story() -> None:
        async with spoken_to(Places(1)) as envoy:
            first, second = envoy.stream(), envoy.stream()
            for message in EXCHANGE[:2]:
                await envoy.exchange(first, message)
            await envoy.exchange(second, REQUEST_HEADERS)
            assert await envoy.exchange(second, REQUEST_BODY) == wire.more_time(65_000)
            for message in EXCHANGE[2:]:
                await envoy.exchange(first, message)
            assert await second.read() == GO_ON[REQUEST_BODY]
            await second.done_writing()
            await first.done_writing()

    asyncio.run(story())


@pytest.mark.parametrize(
    "messages",
    [
        (b"",),
        (b"\xff\xff\xff",),
        (REQUEST_BODY,),
        (RESPONSE_BODY,),
        (RESPONSE_HEADERS,),  # of the engine, without a request before it
        (REQUEST_HEADERS + b"\x50\x01",),  # observability_mode
        (REQUEST_HEADERS + b"\x5a\x04\x08\x01\x10\x01",),  # the request's body streamed
        (REQUEST_HEADERS + b"\x5a\x04\x08\x02\x10\x03",),  # the answer's in part
        (REQUEST_HEADERS, RESPONSE_HEADERS),
        (REQUEST_HEADERS, REQUEST_BODY, b"\xff"),
    ],
)
def test_a_stream_that_makes_no_sense_is_ended_with_the_reason(messages: Sequence[bytes]) -> None:
    async def story() -> None:
        async with spoken_to(Places(1)) as envoy:
            call = envoy.stream()
            for message in messages[:-1]:
                await envoy.exchange(call, message)
            await call.write(messages[-1])
            assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert await call.details()
            await until(envoy.is_empty)

    asyncio.run(story())


def test_what_envoy_refused_itself_is_no_concern() -> None:
    own = RESPONSE_HEADERS.replace(b"via_upstream", b"path_invalid")

    async def story() -> None:
        async with spoken_to(Places(1)) as envoy:
            call = envoy.stream()
            await call.write(own)
            assert await call.code() is grpc.StatusCode.OK

    asyncio.run(story())


def test_health_is_told_by_the_names_of_endpoint_pickers() -> None:
    async def story() -> None:
        async with spoken_to(Places(1)) as envoy:
            check: Any = envoy.channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            for draining in (False, True):
                if draining:
                    assert await envoy.processor.drain(5)
                for name in ("", "liveness", "readiness", wire.SERVICE):
                    told = await check(health_pb2.HealthCheckRequest(service=name))
                    serving = name == "liveness" or not draining
                    assert told.status == (
                        health_pb2.HealthCheckResponse.SERVING
                        if serving
                        else health_pb2.HealthCheckResponse.NOT_SERVING
                    )

    asyncio.run(story())


def test_draining_watches_answers_to_their_ends() -> None:
    async def story() -> None:
        policy = Places(1)
        async with spoken_to(policy) as envoy:
            call = envoy.stream()
            for message in EXCHANGE[:2]:
                await envoy.exchange(call, message)
            assert not await envoy.processor.drain(0)
            late = envoy.stream()
            await envoy.exchange(late, REQUEST_HEADERS)
            assert b'"draining"' in await envoy.exchange(late, REQUEST_BODY)
            draining = asyncio.create_task(envoy.processor.drain(30))
            for message in EXCHANGE[2:]:
                await envoy.exchange(call, message)
            await call.done_writing()
            assert await draining
        assert policy.endings[1].how is Ended.COMPLETED

    asyncio.run(story())


def test_observers_are_told_of_each_request_once() -> None:
    class Notes:
        def __init__(self) -> None:
            self.records: list[tuple[str, RequestRecord]] = []

        def arrived(self, record: RequestRecord, head: RequestHead) -> None:
            head.headers.append((b"traceparent", b"00-1-2-01"))
            self.records.append(("arrived", record))

        def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None:
            self.records.append(("progressed", record))

        def ended(self, record: RequestRecord) -> None:
            self.records.append(("ended", record))

    async def story() -> None:
        async with spoken_to(Places(1), observers=[notes]) as envoy:
            call, left = envoy.stream(), envoy.stream()
            assert await envoy.exchange(call, REQUEST_HEADERS) == GO_ON[REQUEST_HEADERS]
            assert b"traceparent\x1a\x0900-1-2-01" in await envoy.exchange(call, REQUEST_BODY)
            await envoy.exchange(left, REQUEST_HEADERS)
            await envoy.exchange(left, REQUEST_BODY)
            left.cancel()
            await until(lambda: envoy.desk.waiting == 0)
            for message in EXCHANGE[2:]:
                await envoy.exchange(call, message)
            await call.done_writing()
            await until(envoy.is_empty)

    notes = Notes()
    asyncio.run(story())
    assert (
        sorted(what for what, _ in notes.records if what != "progressed") == ["arrived"] * 2 + ["ended"] * 2
    )
    record = notes.records[0][1]
    assert (record.status, record.answer_bytes, record.outcome) == (200, 80, "completed")
    assert record.asked_ns <= record.admitted_ns <= record.sent_ns <= record.first_byte_ns
    assert record.first_byte_ns <= record.first_token_ns <= record.finished_ns <= record.ended_ns
    assert notes.records[1][1].outcome == "client-left"


def test_two_processors_do_not_share_an_address() -> None:
    async def story() -> None:
        async with spoken_to(Places(1)) as envoy:
            with pytest.raises(InputError, match="cannot listen on"):
                await serve_ext_proc(envoy.desk, f"127.0.0.1:{envoy.processor.port}")

    asyncio.run(story())


def test_a_socket_in_the_file_system_and_tls_serve_too(tmp_path: Path) -> None:
    pem = (Path(__file__).parent / "localhost.pem").read_bytes()

    async def story() -> None:
        desk = AdmissionDesk(
            Places(1), queued=1, queued_ms=1000, clock_ns=time.monotonic_ns, counters=Counters()
        )
        plain = await serve_ext_proc(desk, f"unix:{tmp_path}/processor")
        secret = await serve_ext_proc(
            desk, "127.0.0.1:0", tls=ProcessorTls(certificate=pem, key=pem, client_roots=pem)
        )
        credentials = grpc.ssl_channel_credentials(pem, pem, pem)
        nobody = grpc.ssl_channel_credentials(pem)
        name = f"localhost:{secret.port}"
        async with (
            grpc.aio.insecure_channel(f"unix:{tmp_path}/processor") as local,
            grpc.aio.secure_channel(name, credentials) as mutual,
            grpc.aio.secure_channel(name, nobody) as unknown,
        ):
            for channel in (local, mutual):
                call: Any = channel.stream_stream(METHOD)()
                await call.write(REQUEST_HEADERS)
                assert await call.read() == GO_ON[REQUEST_HEADERS]
                await call.done_writing()
            stranger: Any = unknown.stream_stream(METHOD)()
            assert await stranger.code() is grpc.StatusCode.UNAVAILABLE
        await plain.close()
        await secret.close()

    asyncio.run(story())
