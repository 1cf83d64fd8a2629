"""Gateways of the tests that share a real store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gateway.shared.hammer import QUICK
from gateway.shared.valkey_server import WAIT_S, ValkeyServer
from vramledger.gateway.shared.grant import Grant
from vramledger.gateway.shared.keeper import SharedBudgets
from vramledger.gateway.shared.settings import SharingSettings
from vramledger.gateway.shared.store import Store

BLOCKS = 1000


def gateway(server: ValkeyServer, settings: SharingSettings = QUICK, **more: Any) -> SharedBudgets:
    return SharedBudgets(Store(server.address, timeout_ms=settings.timeout_ms), settings, **more)


def part(
    gateway: SharedBudgets, blocks: int = BLOCKS, places: int = 10, instance: str = "engine:8000"
) -> Grant:
    grant = gateway.budget(instance)
    grant.offer(blocks, places)
    return grant


async def until(said: Callable[[], bool], what: str = "") -> None:
    """Waits until something is so, and fails after a time that no slow machine needs."""
    end = time.monotonic() + WAIT_S
    while not said():
        assert time.monotonic() < end, what or "it did not come to that"
        await asyncio.sleep(0.005)
