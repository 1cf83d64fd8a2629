"""From a configuration to a gateway with all its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.live.capacity import Given
from vramledger.gateway.live_engines import given_of, opened
from vramledger.gateway.open_house import OpenHouse
from vramledger.gateway.policy_section import Deciding
from vramledger.gateway.service import Engines, GatewayService, upstreams_of
from vramledger.gateway.tenants.tenant import Tenants


async def assembled(
    config: GatewayConfig,
    *,
    given: Given | None = None,
    reread: Callable[[], GatewayConfig],
    told: Callable[[str, str, dict[str, Any]], None],
) -> GatewayService:
    """Not started yet. `given` is what a plan says of the engines. Raises InputError or SourceError for what cannot be as it is configured."""
    upstreams = upstreams_of(config)
    engines: Engines = OpenHouse(config)
    if config.policy.decided_by is Deciding.POLICY:
        weights = Tenants(config.tenants).weights
        engines = await opened(config, upstreams, given_of(config, given), weights)
    return GatewayService(config, engines, reread=reread, told=told)
