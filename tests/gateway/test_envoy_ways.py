"""Where requests behind Envoy go and which ones do: the engine that was chosen, what the door says, and filters that cannot decide."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tools.envoy.proxy import as_it_is, configured, running

from gateway.client import CHAT, ask, read_answer, request, until
from gateway.engine import Engine
from gateway.envoy_proxy import envoy_with, needs_envoy
from gateway.envoy_requests import MODES, by_user, opened
from gateway.gateway_process import admin, gateway_process
from gateway.policies import Places
from vramledger.gateway.admitter import Decision, Kind, Verdict
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.stages import Asked, Visitor

pytestmark = needs_envoy


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
