"""The plan of an instance that failed, and the same with flags changed: what sizes a diagnosis's remedies."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.answer import Plan
from vramledger.diagnosis.remedy import Planner
from vramledger.engines import check_engine, engine_name, engine_names
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.planning import plan
from vramledger.reconciliation.arguments import flags_of


def planner_of(
    checkpoint: Checkpoint,
    device: Device,
    *,
    engine: str,
    version: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Planner:
    """Plans the failing instance with some of its flags changed.

    `settings` are the engine's own names and values as printed or given; those that are no flag here, or have a value that
    ours does not take, are left at their defaults. Raises FlagError for an engine without rules here.
    """
    name = engine_name(engine)
    if name not in engine_names():
        raise FlagError(
            f"{name} has no rules here, so no remedy can be sized by a plan; known: {', '.join(engine_names())}",
            flag="engine",
            value=engine,
        )
    plain = {
        key: value for key, value in (settings or {}).items() if isinstance(value, str | int | float | bool)
    }
    flags, _ = flags_of(name, plain.items())
    asked = name
    if version is not None:
        try:
            check_engine(f"{name}=={version}")
            asked = f"{name}=={version}"
        except FlagError:
            pass  # a build without a number, or one that no rules here cover: the newest rules stand for it

    def planner(changes: Mapping[str, object]) -> Plan:
        return plan(checkpoint, device, engine=asked, **{**flags, **changes})  # type: ignore[arg-type]

    return planner
