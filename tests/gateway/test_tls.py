"""TLS at the door and towards the engine. The key beside this file is of these tests alone."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from gateway.client import read_answer, request
from gateway.engine import Call, Engine
from gateway.policies import Places
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.settings import Upstream

PEM = Path(__file__).with_name("localhost.pem")


def test_both_sides_may_be_encrypted_and_a_stranger_is_not_trusted() -> None:
    async def story() -> None:
        ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ours.load_cert_chain(PEM)
        trusting = ssl.create_default_context(cafile=PEM)
        async with Engine(Call.whole, tls=ours) as engine:
            upstream = Upstream(host="127.0.0.1", port=engine.port, tls=True)
            for context, status in ((trusting, 200), (None, 503)):
                gateway = Gateway(upstream, Places(1), upstream_tls=context)
                await gateway.start("127.0.0.1", 0, tls=ours)
                reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, ssl=trusting)
                writer.write(request())
                answer = await read_answer(reader)
                assert answer.status == status
                if status == 503:
                    assert "TLS failed" in str(answer.error["message"])
                writer.transport.abort()
                await gateway.close()
                assert gateway.pool.open_connections == 0

    asyncio.run(story())
