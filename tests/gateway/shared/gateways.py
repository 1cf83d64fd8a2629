"""Gateways of the tests that share a real store."""

from __future__ import annotations

from typing import Any

from gateway.shared.hammer import QUICK
from gateway.shared.valkey_server import ValkeyServer
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
