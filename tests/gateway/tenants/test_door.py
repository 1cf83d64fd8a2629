"""The door on a real socket: keys, wishes, what the engine is sent, and what it never sees."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client import CHAT, Answer, ask, request
from gateway.engine import Call, Engine
from gateway.policies import Places
from vramledger.errors import InputError
from vramledger.gateway.admitter import Kind
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.replies import Reply
from vramledger.gateway.settings import Upstream
from vramledger.gateway.stages import Visitor
from vramledger.gateway.tenants.cache_salt import salting_for, tenants_salt
from vramledger.gateway.tenants.doorkeeper import Door, DoorSettings
from vramledger.gateway.tenants.keys import new_key
from vramledger.gateway.tenants.tenant import Tenant

SECRET = b"s" * 32
ENGINES = b"Bearer engines-own"
(KEY_A, HASH_A), (KEY_B, HASH_B) = new_key(), new_key()
A = Tenant(keys=(HASH_A.line,), priority=2, within_ms=9_000)
B = Tenant(keys=(HASH_B.line,), models=("m", "adapter"))


@asynccontextmanager
async def house(settings: DoorSettings) -> AsyncIterator[tuple[Gateway, Engine, Places]]:
    policy = Places(4)
    async with Engine(Call.whole) as engine:
        door = Door(settings, salting_for("vllm", "0.33.0"))
        gateway = Gateway(upstream_of(engine.port, settings), policy, doorkeeper=door)
        await gateway.start("127.0.0.1", 0)
        yield gateway, engine, policy
        await gateway.close()
        assert gateway.held.bytes == gateway.desk.admitted == gateway.in_flight == 0


def upstream_of(port: int, settings: DoorSettings) -> Upstream:
    own = ENGINES if settings.keeps_keys else b""
    upstream = Upstream(host="127.0.0.1", port=port, authorization=own)
    assert "engines-own" not in repr(upstream)
    return upstream


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}\r\n"


def test_only_keys_open_and_the_engine_gets_its_own() -> None:
    async def story() -> None:
        settings = DoorSettings(tenants={"a": A, "b": B}, keeps_keys=True, salt_secret=SECRET)
        async with house(settings) as (gateway, engine, policy):
            refused = [
                "",
                bearer(KEY_A + "x"),
                bearer(KEY_A[:-1]),
                bearer(""),
                "Authorization: Basic eDp5\r\n",
                "x-api-key: engines-own\r\n",
                bearer(KEY_A) + f"x-api-key: {KEY_B}\r\n",  # whose request would it be?
                "Authorization: Basic eDp5\r\n" + f"x-api-key: {KEY_A}\r\n",
            ]
            for headers in refused:
                answer = await ask(gateway.port, request(headers=headers))
                assert answer.status == 401
                assert answer.error["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == 'Bearer realm="vramledger"'
            assert not engine.calls
            assert gateway.counters.turned_away == len(refused)
            for headers in (
                bearer(KEY_A),
                f"authorization: bearer   {KEY_A}\r\n",
                f"X-Api-Key: {KEY_A}\r\n",
                f"api-key: {KEY_A}\r\nAuthorization: Bearer {KEY_A}\r\n",
            ):
                assert (await ask(gateway.port, request(headers=headers))).status == 200
                sent = engine.calls[-1]
                assert sent.head.count(b"authorization: Bearer engines-own\r\n") == 1
                assert KEY_A.encode() not in sent.head + sent.body
                assert b"api-key" not in sent.head
            assert {facts.tenant for facts in policy.facts.values()} == {1}

    asyncio.run(story())


def test_who_has_no_key_does_not_make_the_gateway_hold_a_long_body() -> None:
    async def story() -> None:
        async with house(DoorSettings(tenants={"a": A})) as (gateway, engine, _):
            for key, path in ((KEY_A[:-1], CHAT), (KEY_A, "/metrics")):
                head = f"POST {path} HTTP/1.1\r\nHost: g\r\n{bearer(key)}Content-Length: 9000000\r\n\r\n"
                answer = await ask(gateway.port, head.encode() + b"x" * 20_000)
                assert (answer.status, answer.headers["connection"]) == (
                    401 if path == CHAT else 403,
                    "close",
                )
            assert gateway.held.bytes == 0
            long = request(headers=bearer(KEY_A), prompt="x" * 100_000)
            assert (await ask(gateway.port, long)).status == 200
            assert len(engine.calls) == 1

    asyncio.run(story())


def test_tenants_get_salts_of_their_own() -> None:
    async def story() -> None:
        async with house(DoorSettings(tenants={"a": A, "b": B}, salt_secret=SECRET)) as (gateway, engine, _):
            own = "what the client said"
            for key, more in (
                (KEY_A, {}),
                (KEY_B, {}),
                (KEY_A, {"cache_salt": own}),
                (KEY_B, {"cache_salt": own}),
            ):
                assert (await ask(gateway.port, request(headers=bearer(key), **more))).status == 200
            salts = [json.loads(call.body)["cache_salt"] for call in engine.calls]
            assert salts == [tenants_salt(SECRET, name, said) for said in (None, own) for name in ("a", "b")]
            assert len(set(salts)) == 4
            length = int(engine.calls[-1].head.split(b"content-length: ")[1].split(b"\r")[0])
            assert length == len(engine.calls[-1].body)
            bad = await ask(gateway.port, request(headers=bearer(KEY_A), cache_salt=5))
            assert (bad.status, bad.error["code"]) == (400, "bad-salt")

    asyncio.run(story())


def test_without_tenants_everybody_is_one_and_nothing_is_touched() -> None:
    async def story() -> None:
        async with house(DoorSettings(salt_secret=SECRET)) as (gateway, engine, policy):
            message = request(headers=bearer("the-engine-knows-it"), cache_salt="mine")
            assert (await ask(gateway.port, message)).status == 200
            assert b"authorization: Bearer the-engine-knows-it\r\n" in engine.calls[0].head
            assert engine.calls[0].body == message.partition(b"\r\n\r\n")[2]
            assert policy.facts[1].tenant == 0
            assert (await ask(gateway.port, request("/sleep"))).status == 403

    asyncio.run(story())


def test_wishes_are_bounded_and_checked() -> None:
    async def story() -> None:
        async with house(DoorSettings(tenants={"a": A})) as (gateway, engine, policy):
            wish = "X-Request-Deadline-Ms: 70\r\nX-First-Token-Deadline-Ms: 50\r\nX-Request-Priority: {}\r\n"
            for priority in (-5, 7):
                await ask(gateway.port, request(headers=bearer(KEY_A) + wish.format(priority)))
            await ask(gateway.port, request(headers=bearer(KEY_A)))
            told = [
                (facts.within_ms, facts.first_token_within_ms, facts.priority)
                for facts in policy.facts.values()
            ]
            assert told == [(70, 50, 2), (70, 50, 7), (9_000, None, 2)]
            assert b"deadline" not in engine.calls[0].head
            for nonsense in ("0", "-1", "1.5", "1e3", "", "soon", "9" * 30, "5, 6", "\xb2"):
                message = request(headers=bearer(KEY_A) + f"X-Request-Deadline-Ms: {nonsense}\r\n")
                answer = await ask(gateway.port, message)
                assert (answer.status, answer.error["code"]) == (400, "bad-header")
                assert "x-request-deadline-ms" in str(answer.error["message"])
            twice = await ask(gateway.port, request(headers=bearer(KEY_A) + "X-Request-Priority: 1\r\n" * 2))
            assert twice.status == 400

    asyncio.run(story())


def test_what_a_tenant_may_ask_for() -> None:
    async def story() -> None:
        ops = Tenant(keys=(HASH_A.line,), allow_paths=("POST /sleep",))
        async with house(DoorSettings(tenants={"ops": ops, "b": B})) as (gateway, engine, _):

            async def code(key: str, path: str = CHAT, **asked: object) -> object:
                answer: Answer = await ask(gateway.port, request(path, headers=bearer(key), **asked))  # type: ignore[arg-type]
                return answer.status if answer.status == 200 else answer.error["code"]

            assert await code(KEY_B) == await code(KEY_B, model="adapter") == 200
            assert await code(KEY_B, model="other") == await code(KEY_B, model=None) == "model-not-found"
            assert await code(KEY_B, lora_path="x") == "adapter-refused"
            assert await code(KEY_B, "/sleep") == "path-guarded"
            assert await code(KEY_A, "/sleep") == await code(KEY_A, model="other") == 200
            calls = len(engine.calls)
            assert (
                await code(KEY_A, kv_transfer_params={"remote_host": "169.254.169.254"}) == "member-refused"
            )
            assert (
                await code(KEY_A, vllm_xargs={"kv_transfer_params": "x", "a": 1})
                == await code(KEY_A, ec_transfer_params={"host": "x"})
                == await code(KEY_A, "/v1/responses", previous_response_id="resp_of_another")
                == "member-refused"
            )
            assert await code(KEY_A, "/v1/responses", background=True) == "background-refused"
            assert await code(KEY_A, "/v1/audio/transcriptions") == "path-unpriced"
            assert len(engine.calls) == calls
            health = await ask(gateway.port, request("/health", method="GET"))
            assert health.status == 200  # a probe has no key
            models = await ask(gateway.port, request("/v1/models", method="GET"))
            assert models.status == 401

    asyncio.run(story())


def test_other_settings_from_one_moment_to_the_next() -> None:
    door = Door(DoorSettings(tenants={"a": A, "b": B}))
    head = RequestHead(
        method=b"POST", target=CHAT.encode(), headers=[(b"x-api-key", KEY_B.encode())], http_11=True
    )
    before = door.visitor(head, Kind.CHAT)
    assert before == Visitor(tenant=2, name="b")
    with pytest.raises(InputError, match=r"tenants\.c\.keys"):
        door.adopt(DoorSettings(tenants={"c": Tenant(keys=("secret",))}))
    with pytest.raises(InputError, match="METHOD /PATH"):
        door.adopt(DoorSettings(tenants={}, allow_paths=("sleep",)))
    assert door.visitor(head, Kind.CHAT) == before  # a bad one changes nothing
    door.adopt(DoorSettings(tenants={"b": B}))
    assert door.visitor(head, Kind.CHAT) == before  # and a name keeps its number
    door.adopt(DoorSettings(tenants={"a": A}))
    assert isinstance(door.visitor(head, Kind.CHAT), Reply)
    late = door.outgoing(before, head, Kind.CHAT, b"{}", {})
    assert isinstance(late, Reply)
    assert late.status == 401  # it went while its request was read


def test_upstreams_come_from_the_configuration_alone() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as other, house(DoorSettings()) as (gateway, engine, _):
            elsewhere = f"127.0.0.1:{other.port}"
            for model in (f"http://{elsewhere}/v1", f"openai/{elsewhere}", "../" * 9):
                assert (await ask(gateway.port, request(model=model))).status == 200
            host = request().replace(b"Host: gateway", f"Host: {elsewhere}".encode())
            assert (await ask(gateway.port, host)).status == 200
            for target in (f"http://{elsewhere}{CHAT}", f"{elsewhere}", f"//{elsewhere}{CHAT}"):
                assert (await ask(gateway.port, request(target))).status in (400, 404)
            forwarded = f"X-Forwarded-Host: {elsewhere}\r\nForwarded: host={elsewhere}\r\n"
            assert (await ask(gateway.port, request(headers=forwarded))).status == 200
            assert not other.calls
            assert other.connections == 0
            assert len(engine.calls) == 5

    asyncio.run(story())


def test_no_log_line_or_answer_holds_a_key(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> list[Answer]:
        settings = DoorSettings(tenants={"a": A}, keeps_keys=True, salt_secret=SECRET)
        assert SECRET.decode() not in repr(settings)
        async with house(settings) as (gateway, _, _):
            wrong = KEY_A[:-1]
            messages = [
                request(headers=bearer(wrong), prompt="the-prompt"),
                request(headers=bearer(KEY_A) + f"X-Request-Priority: {KEY_A}\r\n"),
                request("/" + KEY_A, headers=bearer(KEY_A)),
                request(headers=bearer(KEY_A), cache_salt={"the-prompt": KEY_A}),
                request(headers=bearer(KEY_A), n=KEY_A),
                request(headers=bearer(KEY_A)).replace(b'"', b"\\"),
            ]
            return [await ask(gateway.port, message) for message in messages]

    with caplog.at_level(logging.DEBUG):
        answers = asyncio.run(story())
    for text in (*(str(answer) for answer in answers), caplog.text):
        for secret in (KEY_A[:-1], "engines-own", "the-prompt", HASH_A.digest.hex(), SECRET.decode()):
            assert secret not in text
    assert [answer.status for answer in answers] == [401, 400, 404, 400, 400, 400]


@given(st.binary(max_size=60), st.sampled_from([b"authorization", b"x-api-key", b"x-request-priority"]))
def test_no_header_breaks_the_door(value: bytes, name: bytes) -> None:
    door = Door(DoorSettings(tenants={"a": A}))
    head = RequestHead(method=b"POST", target=CHAT.encode(), headers=[(name, value)], http_11=True)
    reply = door.visitor(head, Kind.CHAT)
    assert isinstance(reply, Reply)
    assert 400 <= reply.status < 500
