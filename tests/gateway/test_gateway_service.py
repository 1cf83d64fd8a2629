"""A gateway with a policy while its configuration changes: what can change does, all of it or nothing, and nobody who waits is lost."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.client import ask, read_answer, request, until
from gateway.engine import Call, Engine
from vramledger.errors import InputError
from vramledger.gateway.assembly import assembled
from vramledger.gateway.config import GatewayConfig, read_config
from vramledger.gateway.service import GatewayService
from vramledger.gateway.tenants.keys import new_key

(KEY_A, HASH_A), (KEY_B, HASH_B) = new_key(), new_key()


class Says:
    """The configuration's file: whatever it holds now."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def read(self) -> GatewayConfig:
        return read_config(self.text.encode(), "g.toml")

    def say(self, event: str, sentence: str, facts: dict[str, Any]) -> None:
        self.told.append((event, sentence, facts))


def text(port: int, policy: str = "", more: str = "") -> str:
    return f"""
listen = "127.0.0.1:0"
[[upstream]]
url = "http://127.0.0.1:{port}"
name = "one"
engine = "vllm"
pool_tokens = 640
max_model_len = 400
max_running = 4
[admin]
listen = ""
[policy]
goal = "no-failure"
{policy}
[tokens]
ask = "never"
[tenants.a]
keys = ["{HASH_A.line}"]
{more}
"""


@asynccontextmanager
async def service_of(says: Says) -> AsyncIterator[GatewayService]:
    service = await assembled(says.read(), reread=says.read, told=says.say)
    await service.start()
    try:
        yield service
    finally:
        await service.close()
    assert service.gateway.desk.admitted == service.gateway.desk.waiting == 0


async def slow(call: Call) -> None:
    """An engine that tells nothing of itself, and answers a chat when it is let."""
    if "chat" not in call.path:
        await call.whole(b"not here", b"404 Not Found")
        return
    await call.left()


def chat(key: str, **asked: Any) -> bytes:
    return request(headers=f"x-api-key: {key}\r\n", **asked)


def test_a_reload_while_requests_run_and_wait() -> None:
    async def story() -> None:
        async with Engine(slow) as engine:
            says = Says(text(engine.port))
            async with service_of(says) as service:
                port = service.gateway.port
                asking = [asyncio.create_task(ask(port, chat(KEY_A, max_tokens=300))) for _ in range(4)]
                await until(lambda: service.gateway.desk.waiting >= 1 and engine.working >= 1)
                waiting, admitted = service.gateway.desk.waiting, service.gateway.desk.admitted

                says.text = text(
                    engine.port,
                    "queue_requests = 1\nageing_ms = 500",
                    f'weight = 3\n[tenants.b]\nkeys = ["{HASH_B.line}"]\n[limits]\nqueued = 9',
                )
                assert (await service.reload())["needs_restart"] == []
                assert (service.gateway.desk.waiting, service.gateway.desk.admitted) == (waiting, admitted)
                refused = await ask(port, chat(KEY_B, max_tokens=300))
                assert (refused.status, refused.error["code"]) == (429, "queue-requests")
                assert service.gateway.limits.queued == 9

                says.text = text(engine.port, 'reservation = "quantile"\nsafety_blocks = 1').replace(
                    "no-failure", "throughput"
                )
                done = await service.reload()
                assert done["needs_restart"] == ["policy.goal", "policy.reservation", "policy.safety_blocks"]
                assert (await ask(port, chat(KEY_B))).status == 401  # the rest of it goes

                before = service.config
                for broken in ("quantile = 2.0", "nonsense = 1", "quantile = 'x'"):
                    says.text = text(engine.port, broken, f'[tenants.b]\nkeys = ["{HASH_B.line}"]')
                    with pytest.raises(InputError):
                        await service.reload()
                    assert service.config is before
                    assert (await ask(port, chat(KEY_B))).status == 401
                assert (service.reloads, service.failed_reloads) == (2, 3)
                assert [event for event, _, _ in says.told].count("reload-failed") == 3
                assert (service.gateway.desk.waiting, service.gateway.desk.admitted) == (waiting, admitted)

                state = service.state()
                assert state["tenants"][0]["queued"] == waiting
                assert state["policy"]["goal"] == "no-failure"
                assert state["gateway"]["instances"][0]["admitted_requests"] == admitted
                for task in asking:
                    task.cancel()
                await asyncio.gather(*asking, return_exceptions=True)
                await until(lambda: service.gateway.desk.admitted == 0)

    asyncio.run(story())


def test_an_engine_that_is_not_there_yet() -> None:
    async def story() -> None:
        async with Engine(slow) as engine:
            port = engine.port
        says = Says(text(port).replace("pool_tokens = 640", ""))
        async with service_of(says) as service:
            answer = await ask(service.gateway.port, chat(KEY_A))
            assert (answer.status, answer.error["code"]) == (503, "engine-opening")
            assert service.unready() == "no engine answers"
            await until(lambda: any(event == "engine-away" for event, _, _ in says.told))

    asyncio.run(story())


def test_certificates_are_read_anew(tmp_path: Path) -> None:
    async def story() -> None:
        pem = tmp_path / "cert.pem"
        shutil.copy(Path(__file__).with_name("localhost.pem"), pem)
        trusting = ssl.create_default_context(cafile=pem)

        async def status(port: int) -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            writer.write(chat(KEY_B))
            answer = await read_answer(reader)
            writer.transport.abort()
            return answer.status

        async with Engine(slow) as engine:
            says = Says(f'tls_cert = "{pem}"' + text(engine.port))
            async with service_of(says) as service:
                assert await status(service.gateway.port) == 401
                good = pem.read_text()
                pem.write_text("no certificate")
                with pytest.raises(InputError, match="certificate"):
                    await service.reload()
                assert await status(service.gateway.port) == 401  # with the one that it has
                pem.write_text(good)
                assert (await service.reload())["needs_restart"] == []
                assert await status(service.gateway.port) == 401

    asyncio.run(story())


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with Engine(slow) as engine:
            says = Says(text(engine.port).replace("127.0.0.1:0", f"127.0.0.1:{engine.port}"))
            service = await assembled(says.read(), reread=says.read, told=says.say)
            with pytest.raises(InputError, match="cannot listen"):
                await service.start()

    asyncio.run(story())
