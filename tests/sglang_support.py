"""Short ways to ask about an SGLang plan."""

from __future__ import annotations

from typing import Any

from support import H100, checkpoint
from vramledger.answer import Plan
from vramledger.engines.sglang.budget import RankTerms, rank_terms
from vramledger.engines.sglang.layers import StageCells
from vramledger.engines.sglang.options import plan_with, read_flags
from vramledger.engines.sglang.settings import Settings, resolve
from vramledger.engines.sglang.sharding import rank_kinds
from vramledger.engines.sglang.version import parse_version
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint

NEWEST = "0.5.23"


def planned(
    config: dict[str, Any],
    device: Device = H100,
    version: str = NEWEST,
    concurrency: int = 1,
    remedies: bool = False,
    **values: Any,
) -> Plan:
    return plan_with(
        checkpoint(config),
        device,
        version=version,
        values=values,
        concurrency=concurrency,
        remedies=remedies,
    )


def settings(config: dict[str, Any], device: Device = H100, version: str = NEWEST, **values: Any) -> Settings:
    return resolve(checkpoint(config), device, parse_version(version), read_flags(values))


def terms(
    config: dict[str, Any], device: Device = H100, version: str = NEWEST, **values: Any
) -> tuple[Settings, list[RankTerms]]:
    subject: Checkpoint = checkpoint(config)
    found = resolve(subject, device, parse_version(version), read_flags(values))
    kinds = rank_kinds(subject.model, found, device)
    return found, [rank_terms(subject, found, device, kind) for kind in kinds]


def cells(config: dict[str, Any], device: Device = H100, version: str = NEWEST, **values: Any) -> StageCells:
    return terms(config, device, version, **values)[1][0].cells
