"""From a configuration to a gateway with all its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.config_secrets import upstreams_of
from vramledger.gateway.live.capacity import Given
from vramledger.gateway.live_engines import given_of, opened
from vramledger.gateway.open_house import OpenHouse
from vramledger.gateway.policy_section import Deciding
from vramledger.gateway.service import Engines, GatewayService
from vramledger.gateway.snapshot import MemoryFacts
from vramledger.gateway.tenants.tenant import Tenants


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan says of the engines: what they have to give, and what fills their devices."""

    given: Given
    memory: MemoryFacts


async def assembled(
    config: GatewayConfig,
    *,
    planned: Planned | None = None,
    reread: Callable[[], GatewayConfig],
    told: Callable[[str, str, dict[str, Any]], None],
) -> GatewayService:
    """Not started yet. Raises InputError or SourceError for what cannot be as it is configured."""
    upstreams = upstreams_of(config)
    engines: Engines = OpenHouse(config)
    if config.policy.decided_by is Deciding.POLICY:
        weights = Tenants(config.tenants).weights
        engines = await opened(
            config, upstreams, given_of(config, planned.given if planned is not None else None), weights
        )
    memory = [planned.memory] * len(upstreams) if planned is not None else []
    try:
        return GatewayService(config, engines, reread=reread, told=told, memory=memory)
    except BaseException:
        await engines.close()
        raise
