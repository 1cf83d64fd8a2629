"""The real Envoy on the configuration that is given to people, before the tests' engine: outcomes, and that nothing is ever kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from tools.envoy.proxy import as_it_is

from gateway.client import CHAT, ask, request, until
from gateway.engine import ANSWER, DONE, EVENT_STREAM, USAGE, WORD, Call, Engine, event
from gateway.envoy_proxy import envoy_with, needs_envoy
from gateway.envoy_requests import DIES_NOW, MODES, OUT_OF_CONTEXT, by_user, opened
from gateway.policies import Places
from vramledger.gateway.admitter import Decision, Ended, Verdict
from vramledger.gateway.settings import Limits

pytestmark = needs_envoy


@MODES
def test_what_is_let_in_passes_and_its_usage_is_read(edit: Callable[[str], str]) -> None:
    async def story() -> None:
        policy = Places(4)
        async with Engine(by_user) as engine, envoy_with([engine], policy, edit=edit) as behind:
            whole = await ask(behind.port, request(max_tokens=7))
            assert (whole.status, whole.body, whole.complete) == (200, ANSWER, True)
            assert whole.headers["x-vramledger-rule"] == "fits"
            stream = await ask(behind.port, request(user="stream", stream=True))
            assert stream.body == WORD + WORD + event({"choices": [], "usage": USAGE}) + DONE
            other = await ask(behind.port, request("/v1/models", method="GET"))
            assert (other.status, other.body) == (200, ANSWER)
            upload = await ask(behind.port, request("/v1/files", user="x" * 200_000))
            assert upload.status == 200
            assert engine.calls[-1].body.endswith(b"x" * 200_000 + b'"}')
            await until(behind.is_empty)
        assert [json.loads(call.body)["model"] for call in engine.calls[:2]] == ["m", "m"]
        assert policy.facts[1].max_output_tokens == 7
        for number in (1, 2):
            ending = policy.endings[number]
            assert (ending.how, ending.prompt_tokens, ending.output_tokens) == (Ended.COMPLETED, 11, 3)
        assert len(policy.facts) == 2  # models and files have no price

    asyncio.run(story())


@MODES
def test_a_refusal_is_the_gateways_own(edit: Callable[[str], str]) -> None:
    class Refuses(Places):
        def decide(self, facts: object, now_ns: int) -> Decision:
            return verdicts.pop(0)

    verdicts = [
        Decision(verdict=verdict, rule="future-peak", message="no room: é", retry_after_ms=2_001)
        for verdict in (Verdict.REJECT, Verdict.UNAVAILABLE, Verdict.NEVER_FITS)
    ]

    async def story() -> None:
        async with Engine(by_user) as engine, envoy_with([engine], Refuses(1), edit=edit) as behind:
            for status, kind in (
                (429, "rate_limit_error"),
                (503, "overloaded_error"),
                (400, "invalid_request_error"),
            ):
                answer = await ask(behind.port, request("/v1/completions", prompt=[5, 6, 7]))
                assert answer.status == status
                assert answer.headers["retry-after"] == "3"
                assert answer.headers["x-vramledger-prompt-tokens"] == "3; most=3; by=token-ids"
                assert answer.headers["x-vramledger-rule"] == "future-peak"
                assert answer.headers["content-type"] == "application/json"
                assert answer.error == {
                    "message": "no room: é",
                    "type": kind,
                    "param": None,
                    "code": "future-peak",
                }
            for body in (b"{a}", b"[]", b""):
                head = f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
                answer = await ask(behind.port, head.encode() + body)
                assert (answer.status, answer.error["code"]) == (400, "bad-body")
            assert not engine.calls

    asyncio.run(story())


@MODES
def test_a_body_that_is_too_large_is_refused_wherever_it_is_noticed(edit: Callable[[str], str]) -> None:
    def small_buffer(config: str) -> str:
        return edit(config).replace("buffer_limit: 33554432", "buffer_limit: 65536")

    async def story() -> None:
        limits = Limits(body_bytes=10_000)
        async with (
            Engine(by_user) as engine,
            envoy_with([engine], Places(1), edit=small_buffer, limits=limits) as behind,
        ):
            told = await ask(behind.port, request(user="x" * 20_000))
            assert (told.status, told.error["code"]) == (413, "body-too-large")
            head = f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            for size in (20_000, 400_000):  # past the processor's bound, and past Envoy's buffer
                chunked = await ask(behind.port, head + b"%x\r\n%b\r\n0\r\n\r\n" % (size, b" " * size))
                assert chunked.status == 413
                assert chunked.error["type"] == "invalid_request_error"
            assert not engine.calls
            await until(behind.is_empty)

    asyncio.run(story())


@MODES
def test_clients_that_leave_give_back_at_once_wherever_they_are(edit: Callable[[str], str]) -> None:
    async def story() -> None:
        policy = Places(1)
        async with Engine(by_user) as engine, envoy_with([engine], policy, edit=edit) as behind:
            _, prefill = await opened(behind.port, "hold")
            await until(lambda: engine.working == 1)
            _, queued = await opened(behind.port)
            await until(lambda: behind.desk.waiting == 1)
            queued.transport.abort()
            await until(lambda: behind.desk.waiting == 0)
            prefill.transport.abort()
            await until(lambda: behind.is_empty() and engine.working == 0)
            reader, streaming = await opened(behind.port, "hold in stream", stream=True)
            await reader.readuntil(b"word ")
            streaming.transport.abort()
            await until(lambda: behind.is_empty() and engine.working == 0)
            assert behind.counted.clients_left == 3
        assert [policy.endings[number].how for number in (1, 2, 3)] == [Ended.CLIENT_LEFT] * 3
        assert policy.endings[3].output_tokens == 1

    asyncio.run(story())


@MODES
def test_a_queued_request_waits_longer_than_a_message_may_take(edit: Callable[[str], str]) -> None:
    def hasty(config: str) -> str:
        return edit(config).replace("message_timeout: 10s", "message_timeout: 1s")

    async def story() -> None:
        policy = Places(1)
        async with Engine(by_user) as engine, envoy_with([engine], policy, edit=hasty) as behind:
            _, first = await opened(behind.port, "hold")
            await until(lambda: engine.working == 1)
            second = asyncio.create_task(ask(behind.port, request()))
            await until(lambda: behind.desk.waiting == 1)
            await asyncio.sleep(1.2)
            first.transport.abort()
            answer = await second
            assert answer.status == 200
            assert answer.headers["x-vramledger-queue-position"] == "1"
            assert int(answer.headers["x-vramledger-queued-ms"]) >= 1_000
            await until(behind.is_empty)

    asyncio.run(story())


def test_what_the_engine_does_wrong_is_told_and_counted() -> None:
    async def story() -> None:
        policy = Places(1)
        async with Engine(by_user) as engine, envoy_with([engine], policy) as behind:
            dead = await ask(behind.port, request(user="die"))
            assert dead.status == 503
            assert "UpstreamConnectionTermination" in str(dead.error["code"])
            assert dead.headers["x-vramledger-rule"] == "fits"
            reader, writer = await opened(behind.port, "die in stream", stream=True)
            await reader.readuntil(b"word ")
            DIES_NOW.append(engine.calls[-1])
            assert not (await reader.read()).endswith(b"0\r\n\r\n")  # cut, and seen to be cut
            writer.close()
            failed = await ask(behind.port, request(user="error in stream", stream=True))
            assert failed.body == WORD + OUT_OF_CONTEXT + DONE
            refused = await ask(behind.port, request(user="fail"))
            assert refused.status == 500
            engine.stop_listening()
            engine.drop_connections()
            gone = await ask(behind.port, request())
            assert gone.status == 503
            assert gone.error["type"] == "upstream_error"
            await until(behind.is_empty)
            counted = behind.counted
            assert (counted.engine_errors, counted.engine_errors_in_streams) == (2, 1)
            assert (counted.upstream_failures, counted.truncated_answers) == (2, 1)
        # Who broke off a stream Envoy does not tell.
        assert [policy.endings[number].how for number in range(1, 6)] == [
            Ended.UPSTREAM_FAILED,
            Ended.CLIENT_LEFT,
            Ended.ENGINE_ERROR,
            Ended.ENGINE_ERROR,
            Ended.UPSTREAM_FAILED,
        ]

    asyncio.run(story())


@MODES
def test_pieces_pass_as_they_come(edit: Callable[[str], str]) -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        for _ in range(5):
            await call.chunk(WORD)
            await seen.acquire()
        await call.write(b"0\r\n\r\n")

    async def story() -> None:
        async with Engine(script) as engine, envoy_with([engine], Places(1), edit=edit) as behind:
            reader, writer = await opened(behind.port, stream=True)
            for _ in range(5):  # the engine writes the next one only when this one was read
                async with asyncio.timeout(30):
                    await reader.readuntil(b"word ")
                seen.release()
            writer.close()
            await until(behind.is_empty)

    seen = asyncio.Semaphore(0)
    asyncio.run(story())


@MODES
def test_streams_that_nobody_watches_still_give_back_at_their_ends(edit: Callable[[str], str]) -> None:
    async def story() -> None:
        policy = Places(1)
        async with (
            Engine(by_user) as engine,
            envoy_with([engine], policy, edit=edit, watch_streams=False) as behind,
        ):
            for _ in range(2):  # the second one waits for the first one's room
                stream = await ask(behind.port, request(user="stream", stream=True))
                assert stream.body == WORD + WORD + event({"choices": [], "usage": USAGE}) + DONE
            reader, left = await opened(behind.port, "hold in stream", stream=True)
            await reader.readuntil(b"word ")
            assert behind.desk.admitted == 1
            left.transport.abort()
            await until(behind.is_empty)
            assert (await ask(behind.port, request())).status == 200
            await until(behind.is_empty)
        unseen, whole = policy.endings[1], policy.endings[4]
        assert unseen.how is whole.how is Ended.COMPLETED
        # In full duplex every piece has to be given back, so it is seen as well.
        assert unseen.output_tokens == (None if edit is as_it_is else 3)
        assert whole.output_tokens == 3

    asyncio.run(story())


@MODES
def test_two_hundred_at_once_are_each_admitted_and_given_back(edit: Callable[[str], str]) -> None:
    async def story() -> None:
        policy = Places(20)
        async with Engine(by_user) as engine, envoy_with([engine], policy, edit=edit) as behind:
            asks = [ask(behind.port, request(user="stream", stream=True)) for _ in range(150)]
            leave = [opened(behind.port, "hold in stream", stream=True) for _ in range(50)]
            left = await asyncio.gather(*leave)
            answers = asyncio.gather(*asks)
            await until(lambda: policy.knows(200))
            for _, writer in left:
                writer.transport.abort()
            assert {(answer.status, len(answer.body), answer.complete) for answer in await answers} == {
                (200, len(WORD * 2 + event({"choices": [], "usage": USAGE}) + DONE), True)
            }
            await until(behind.is_empty)
            stats = await behind.stats()
            assert stats["http.clients.ext_proc.streams_started"] == 200
            assert stats.get("http.clients.ext_proc.streams_failed", 0) == 0
            assert stats["cluster.engine.upstream_rq_retry"] == 0
        assert policy.most_held <= 20
        assert len(policy.endings) == 200

    asyncio.run(story())
