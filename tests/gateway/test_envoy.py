"""The real Envoy on the configuration that is given to people, before the tests' engine: outcomes, and that nothing is ever kept."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tools.envoy.proxy import as_it_is, asked, configured, duplex, running
from tools.envoy.running import processor

from gateway.client import CHAT, ask, read_answer, request, until
from gateway.engine import ANSWER, DONE, EVENT_STREAM, USAGE, WORD, Call, Engine, event
from gateway.envoy_proxy import envoy_with, needs_envoy
from gateway.gateway_process import admin, gateway_process
from gateway.policies import Places
from vramledger.gateway.admitter import Decision, Ended, Kind, Verdict
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.settings import Limits
from vramledger.gateway.stages import Asked, Visitor

pytestmark = needs_envoy
MODES = pytest.mark.parametrize("edit", [as_it_is, duplex])
OUT_OF_CONTEXT = event(
    {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}
)

DIES_NOW: list[Call] = []


async def opened(
    port: int, user: str = "", *, stream: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(user=user, stream=stream))
    return reader, writer


def asked_for(call: Call) -> str:
    return str(json.loads(call.body or b"{}").get("user", ""))


async def by_user(call: Call) -> None:
    """What the engine does is what a request's `user` says."""
    match asked_for(call):
        case "hold":
            await call.left()
        case "hold in stream":
            await call.write(EVENT_STREAM)
            await call.chunk(WORD)
            await call.left()
        case "die":
            call.writer.transport.abort()
        case "die in stream":
            await call.write(EVENT_STREAM)
            await call.chunk(WORD)
            await until(lambda: call in DIES_NOW)
            call.writer.transport.abort()
        case "error in stream":
            await call.stream(WORD, OUT_OF_CONTEXT, DONE)
        case "fail":
            await call.whole(
                b'{"error": {"message": "x", "type": "y", "code": 500}}', b"500 Internal Server Error"
            )
        case "stream":
            await call.stream(WORD, WORD, event({"choices": [], "usage": USAGE}), DONE)
        case _:
            await call.whole()


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
                answer = await ask(behind.port, request())
                assert answer.status == status
                assert answer.headers["retry-after"] == "3"
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


def test_a_killed_envoy_takes_nothing_with_it() -> None:
    async def story() -> None:
        policy = Places(2)
        async with Engine(by_user) as engine, envoy_with([engine], policy) as behind:
            kept = []
            for number in range(5):
                user = "hold" if number else "hold in stream"
                kept.append(await opened(behind.port, user, stream=not number))
                await until(partial(policy.knows, number + 1))
            await until(lambda: engine.working == 2)
            behind.envoy.process.kill()
            await until(behind.is_empty)
            for _, writer in kept:
                writer.close()
        assert len(policy.endings) == 5

    asyncio.run(story())


@MODES
def test_the_processor_is_stopped_and_answers_go_on(edit: Callable[[str], str]) -> None:
    """Those that wait are told; those that were let in reach their ends unwatched; nobody gets in any more."""

    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        await go_on.wait()
        await call.chunk(DONE)
        await call.write(b"0\r\n\r\n")

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, envoy_with([engine], policy, edit=edit) as behind:
            reader, writer = await opened(behind.port, stream=True)
            await reader.readuntil(b"word ")
            waiting = asyncio.create_task(ask(behind.port, request()))
            await until(lambda: behind.desk.waiting == 1)
            await behind.processor.close()
            assert behind.is_empty()
            told = await waiting
            assert (told.status, told.error["code"]) == (503, "draining")
            go_on.set()
            async with asyncio.timeout(30):
                assert (await reader.readuntil(b"[DONE]")).endswith(b"[DONE]")
            writer.close()
            down = await ask(behind.port, request())
            assert (down.status, down.error["type"]) == (503, "upstream_error")
        assert {ending.how for ending in policy.endings.values()} == {Ended.DRAINED}

    go_on = asyncio.Event()
    asyncio.run(story())


def test_a_killed_processor_cuts_what_it_watched_and_its_successor_begins_anew() -> None:
    async def story() -> None:
        async with Engine(by_user) as engine:
            with processor() as first, running(configured(first.port, [engine.port], as_it_is)) as envoy:
                reader, writer = await opened(envoy.port, "hold in stream", stream=True)
                await reader.readuntil(b"word ")
                assert first.held()["admitted"] == 1
                first.kill()
                async with asyncio.timeout(30):
                    assert not (await reader.read()).endswith(b"0\r\n\r\n")
                await until(
                    lambda: engine.working == 0
                )  # Envoy leaves the engine too: what was unbooked is not used
                down = await ask(envoy.port, request())
                assert (down.status, down.error["type"]) == (503, "upstream_error")
                writer.close()
                with processor(first.port) as second:
                    answer = await ask(envoy.port, request())
                    while answer.status == 503:  # until Envoy tries the address again
                        await asyncio.sleep(0.1)
                        answer = await ask(envoy.port, request())
                    assert answer.status == 200
                    assert second.held()["endings"] == {"completed": 1}

    asyncio.run(story())


def test_all_attempts_of_a_request_have_one_reservation() -> None:
    async def story() -> None:
        policy = Places(1)
        async with (
            Engine(by_user) as gone,
            Engine(by_user) as there,
            envoy_with([gone, there], policy) as behind,
        ):
            gone.stop_listening()
            for _ in range(6):
                assert (await ask(behind.port, request())).status == 200
            await until(behind.is_empty)
            stats = await behind.stats()
            assert stats["cluster.engine.upstream_rq_retry"] > 0
        assert len(policy.endings) == len(there.calls) == 6
        assert {ending.how for ending in policy.endings.values()} == {Ended.COMPLETED}

    asyncio.run(story())


def test_only_what_generates_is_sent_again_when_a_pooled_connection_swallowed_it() -> None:
    async def script(call: Call) -> None:
        if call.writer in served:  # closed as the second request arrives
            call.writer.transport.abort()
            return
        served.append(call.writer)
        await call.whole()

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, envoy_with([engine], policy) as behind:
            for _ in range(5):
                assert (await ask(behind.port, request("/v1/chat/completions/"))).status == 200
            assert len(engine.calls) == 5 + 4
            engine.calls.clear()
            upload = await ask(behind.port, request("/v1/files"))
            assert (upload.status, len(engine.calls)) == (503, 1)
            await until(behind.is_empty)
        assert [ending.how for ending in policy.endings.values()] == [Ended.COMPLETED] * 5

    served: list[asyncio.StreamWriter] = []
    asyncio.run(story())


def test_envoy_drains_and_streams_reach_their_ends() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        await go_on.wait()
        await call.chunk(DONE)
        await call.write(b"0\r\n\r\n")

    async def story() -> None:
        policy = Places(1)
        async with Engine(script) as engine, envoy_with([engine], policy) as behind:
            reader, writer = await opened(behind.port, stream=True)
            await reader.readuntil(b"word ")
            await asyncio.to_thread(
                asked, behind.envoy.admin_port, "/drain_listeners?graceful", method="POST"
            )
            go_on.set()
            async with asyncio.timeout(30):
                await reader.readuntil(b"[DONE]")
            await until(behind.is_empty)
            writer.close()
        assert policy.endings[1].how is Ended.COMPLETED

    go_on = asyncio.Event()
    asyncio.run(story())


def test_the_instance_that_the_policy_chose_gets_the_request() -> None:
    class Chooses(Places):
        def decide(self, facts: object, now_ns: int) -> Decision:
            super().decide(facts, now_ns)  # type: ignore[arg-type]
            return Decision(
                verdict=Verdict.ADMIT, rule="fits", instance=int(getattr(facts, "max_output_tokens", 0) or 0)
            )

    async def story() -> None:
        policy = Chooses(9)
        async with Engine(by_user) as first, Engine(by_user) as second:
            endpoints = [f"127.0.0.1:{engine.port}" for engine in (first, second)]
            async with envoy_with([first, second], policy, endpoints=endpoints) as behind:
                liar = "x-gateway-destination-endpoint: 10.0.0.1:80\r\n"
                for instance in (1, 0, 1, 1, 0, 1):
                    answer = await ask(behind.port, request(max_tokens=instance, headers=liar))
                    assert answer.status == 200
                nobody = await ask(behind.port, request(max_tokens=2))
                assert (nobody.status, nobody.error["code"]) == (503, "endpoint-not-eligible")
                await ask(behind.port, request("/v1/models", method="GET", headers=liar))
                await until(behind.is_empty)
                assert behind.counted.served_elsewhere == 0
                first.stop_listening()
                first.drop_connections()
                assert (await ask(behind.port, request(max_tokens=0))).status == 200
                assert behind.counted.served_elsewhere == 1
            calls = [call for call in first.calls if call.path == CHAT]
            assert (len(calls), len([call for call in second.calls if call.path == CHAT])) == (2, 5)
            for call in first.calls + second.calls:
                assert b"10.0.0.1" not in call.head

    asyncio.run(story())


@MODES
def test_what_the_doorkeeper_sends_on_is_what_the_engine_gets(edit: Callable[[str], str]) -> None:
    class Salts:
        def visitor(self, head: RequestHead, kind: Kind | None) -> Visitor:
            return Visitor(tenant=3, name="t")

        def outgoing(
            self, visitor: Visitor, head: RequestHead, kind: Kind | None, body: bytes, asked: Asked | None
        ) -> tuple[RequestHead, bytes]:
            headers = [pair for pair in head.headers if pair[0] != b"authorization"]
            headers += [(b"x-two", b"1"), (b"x-two", b"2")]
            salted = body if asked is None else json.dumps({**asked, "cache_salt": "s" * 100_000}).encode()
            return replace(head, headers=headers), salted

    async def story() -> None:
        policy = Places(1)
        async with (
            Engine(by_user) as engine,
            envoy_with([engine], policy, edit=edit, doorkeeper=Salts()) as behind,
        ):
            answer = await ask(behind.port, request(headers="Authorization: Bearer secret\r\n"))
            assert answer.status == 200
            await ask(behind.port, request("/v1/models", method="GET", headers="Authorization: k\r\n"))
            await until(behind.is_empty)
        priced, free = engine.calls
        assert json.loads(priced.body)["cache_salt"] == "s" * 100_000
        for call in (priced, free):
            assert b"authorization" not in call.head.lower()
            assert b"x-two: 1\r\nx-two: 2\r\n" in call.head
        assert policy.facts[1].tenant == 3

    asyncio.run(story())


@pytest.mark.parametrize(
    "edit",
    [
        lambda config: config.replace("request_body_mode: BUFFERED", "request_body_mode: NONE"),
        lambda config: config.replace("response_body_mode: STREAMED", "response_body_mode: NONE"),
    ],
)
def test_a_filter_that_cannot_decide_lets_nobody_in(edit: Callable[[str], str]) -> None:
    async def story() -> None:
        async with Engine(by_user) as engine, envoy_with([engine], Places(1), edit=edit) as behind:
            answer = await ask(behind.port, request())
            assert (answer.status, answer.error["type"]) == (503, "upstream_error")
            assert not engine.calls
            await until(behind.is_empty)

    asyncio.run(story())


def test_a_path_that_can_be_read_in_two_ways_gets_to_nobody() -> None:
    async def story() -> None:
        policy = Places(1)
        async with Engine(by_user) as engine, envoy_with([engine], policy) as behind:
            escaped = await ask(behind.port, request("/v1/chat%2fcompletions"))
            assert escaped.status == 400
            doubled = await ask(behind.port, request("//v1/./chat//completions"))
            assert doubled.status == 200
            await until(behind.is_empty)
        assert [call.path for call in engine.calls] == [CHAT]
        assert len(policy.endings) == 1

    asyncio.run(story())


def test_a_client_that_half_closes_is_taken_to_have_gone() -> None:
    async def story() -> None:
        async with Engine(by_user) as engine, envoy_with([engine], Places(1)) as behind:
            reader, writer = await opened(behind.port, "stream", stream=True)
            answer = await read_answer(reader)
            assert answer.complete
            writer.write_eof()
            writer.close()
            await until(behind.is_empty)

    asyncio.run(story())


def test_the_command_serves_envoy_and_clients_behind_one_policy(tmp_path: Path) -> None:
    async def story() -> None:
        async with Engine(by_user) as engine:
            file = tmp_path / "gateway.toml"
            file.write_text(
                f'[[upstream]]\nurl = "http://127.0.0.1:{engine.port}"\nengine = "vllm"\n'
                "pool_tokens = 8192\n[envoy]\nlisten = '127.0.0.1:0'\n"
            )
            async with gateway_process("--config", str(file)) as gateway:
                clients = (await gateway.event("started"))["port"]
                ours = (await gateway.event("envoy"))["port"]
                admin_port = (await gateway.event("admin"))["port"]
                with running(configured(ours, [engine.port], as_it_is)) as envoy:
                    nonsense = request(n="many")
                    for port in (clients, envoy.port):
                        assert (await ask(port, request(user="stream", stream=True))).status == 200
                        refused = await ask(port, nonsense)
                        assert (refused.status, refused.error["code"]) == (400, "bad-body")
                        guarded = await ask(port, request("/metrics", method="GET"))
                        assert guarded.status in (403, 404)
                    reader, writer = await opened(envoy.port, "hold in stream", stream=True)
                    await reader.readuntil(b"word ")
                    writer.transport.abort()
                    for _ in range(600):
                        state = json.loads((await admin(admin_port, "/state")).body)
                        if state["counters"]["released"] == state["counters"]["admitted"] == 3:
                            break
                        await asyncio.sleep(0.05)
                    assert state["counters"]["admitted"] == state["counters"]["released"] == 3
                    gateway.signal(signal.SIGTERM)
                    assert (await gateway.ended())[0] == 0

    asyncio.run(story())
