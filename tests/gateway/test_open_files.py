"""No more clients than the process may have files for: where it runs out of them, nobody is served."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path

from gateway.client import ask, request
from gateway.engine import Call, Engine
from gateway.gateway_process import GatewayProcess, admin, write_config
from vramledger.gateway.open_files import within_open_files
from vramledger.gateway.settings import Limits

FILES = 448
CLIENTS = (FILES - 128 - 256) // 2


def test_limits_that_fit_stay() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert within_open_files(Limits(connections=4)) == Limits(connections=4)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_more_silent_clients_than_files_keep_nobody_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine:
            file = write_config(
                tmp_path,
                f'[[upstream]]\nurl = "http://127.0.0.1:{engine.port}"\n[policy]\ndecided_by = "nobody"\n',
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "vramledger", "gateway", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", file,
                env=os.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES // 2, FILES)),
            )  # fmt: skip
            try:
                running = GatewayProcess(process)
                told = await running.event("fewer-connections")
                assert told["connections"] == CLIENTS
                port = (await running.event("started"))["port"]
                admin_port = (await running.event("admin"))["port"]
                silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(FILES)]
                assert (await ask(port, request())).status == 200
                state = json.loads((await admin(admin_port, "/state")).body)
                assert state["gateway"]["client_connections"] <= CLIENTS
                assert state["counters"]["connections_refused"] >= FILES - CLIENTS
                for _, writer in silent:
                    writer.transport.abort()
                process.terminate()
                code, err = await running.ended()
                assert (code, err) == (0, "")
                assert {event["level"] for event in running.events} == {"info"}
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    asyncio.run(story())
