"""Envoy, processors and engines that are killed, stopped or drained, and requests that Envoy sends again: each gives back once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tools.envoy.proxy import as_it_is, asked, configured, running
from tools.envoy.running import processor

from gateway.client import WAIT_S, ask, request, until
from gateway.engine import DONE, EVENT_STREAM, WORD, Call, Engine
from gateway.envoy_proxy import envoy_with, needs_envoy
from gateway.envoy_requests import MODES, by_user, opened
from gateway.policies import Places
from vramledger.gateway.admitter import Ended

pytestmark = needs_envoy


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
                    async with asyncio.timeout(WAIT_S):
                        while (answer := await ask(envoy.port, request())).status == 503:
                            await asyncio.sleep(0.1)  # until Envoy tries the address again
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
