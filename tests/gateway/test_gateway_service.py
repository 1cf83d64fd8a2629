"""A gateway with a policy while its configuration changes: what can change does, all of it or nothing, and nobody who waits is lost."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from gateway.client import ask, read_answer, until
from gateway.engine import Engine
from gateway.services import HASH_B, KEY_A, KEY_B, Says, chat, service_of, slow, text
from vramledger.errors import InputError
from vramledger.gateway.assembly import assembled


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


def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    async def story() -> None:
        async def fails() -> None:
            raise OSError("cannot be closed")

        async with Engine(slow) as engine:
            says = Says(text(engine.port))
            service = await assembled(says.read(), reread=says.read, told=says.say)
            await service.start()
            port, close = service.gateway.port, service.gateway.close
            service.gateway.close = fails  # type: ignore[method-assign]
            with pytest.raises(OSError, match="cannot be closed"):
                await service.close()
            await until(lambda: not engine.writers)  # none that asks it any more
            assert (await ask(port, chat(KEY_B))).status == 401
            await close()

    asyncio.run(story())
