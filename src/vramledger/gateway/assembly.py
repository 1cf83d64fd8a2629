"""From a configuration to a gateway with all its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.open_house import OpenHouse
from vramledger.gateway.policy_section import Deciding
from vramledger.gateway.service import Engines, GatewayService


async def assembled(
    config: GatewayConfig,
    *,
    reread: Callable[[], GatewayConfig],
    told: Callable[[str, str, dict[str, Any]], None],
) -> GatewayService:
    """Not started yet. Raises InputError or SourceError for what cannot be as it is configured."""
    engines: Engines = OpenHouse(config)
    if config.policy.decided_by is Deciding.POLICY:
        engines = OpenHouse(config)
    return GatewayService(config, engines, reread=reread, told=told)
