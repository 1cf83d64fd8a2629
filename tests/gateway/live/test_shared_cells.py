"""llama.cpp's own server with one pool for all slots, which fails what runs when it is full: beside itself, and behind the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from gateway.client import until
from llamacpp_server import llamacpp_server, needs_llamacpp
from vramledger.engines.full_pool import WhenFull
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.live.opening import open_instances
from vramledger.gateway.settings import Upstream

CELLS = 256
REQUESTS = 8
OUTPUT_TOKENS = 32

pytestmark = needs_llamacpp


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    folder = tmp_path_factory.mktemp("live")
    with llamacpp_server(
        folder, "-c", str(CELLS), "-np", "8", "--kv-unified", "--metrics", "--slots"
    ) as port:
        yield Upstream(host="127.0.0.1", port=port)


async def completion(port: int, number: int) -> tuple[int, bool, bytes]:
    """Status, whether the stream was whole, and what came."""
    asked = {
        "prompt": f"{number} once upon a time there was a king",
        "n_predict": OUTPUT_TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    body = json.dumps(asked).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"POST /completion HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        writer.write(body)
        async with asyncio.timeout(300):
            answer = await reader.read()
    finally:
        writer.transport.abort()
    return int(answer.split(b" ", 2)[1]), b'"stop":true' in answer and b"exceeded" not in answer, answer


async def all_at_once(port: int) -> list[tuple[int, bool, bytes]]:
    return await asyncio.gather(*(completion(port, number) for number in range(REQUESTS)))


def test_what_fails_inside_streams_by_itself_succeeds_behind_the_gateway(upstream: Upstream) -> None:
    async def story() -> None:
        alone = await all_at_once(upstream.port)
        assert any(status == 200 and not whole and b"exceeded" in told for status, whole, told in alone)
        admitter = await open_instances([upstream], interval_s=0.2)
        (instance,) = admitter.instances
        assert instance.capacity is not None and instance.capacity.when_full is WhenFull.FAIL
        assert (instance.capacity.layout.usable_blocks, instance.capacity.max_running) == (CELLS, 8)
        admitter.start()
        gateway = Gateway(upstream, admitter)
        await gateway.start("127.0.0.1", 0)
        try:
            behind = await all_at_once(gateway.port)
            assert [(status, whole) for status, whole, _ in behind] == [(200, True)] * REQUESTS
            assert gateway.counters.queued > 0
            readings = instance.readings
            await until(lambda: instance.readings > readings + 1)
            state = admitter.instance_states(gateway.clock_ns())[0]
            assert (state.booked_blocks, state.reserved_blocks, state.used_blocks) == (0, 0, 0)
            assert (state.foreign_blocks, state.running_requests, state.is_up) == (0, 0, True)
            assert (
                state.total_output_tokens is not None
                and state.total_output_tokens >= REQUESTS * OUTPUT_TOKENS
            )
        finally:
            await gateway.close()
            await admitter.close()
        assert admitter.open_requests == 0

    asyncio.run(story())
