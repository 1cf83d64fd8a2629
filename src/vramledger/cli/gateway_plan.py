"""What a manifest or a plan says of the engines of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramledger.cli.document_files import manifest_from, plan_from
from vramledger.errors import InputError

if TYPE_CHECKING:
    from vramledger.gateway.assembly import Planned
    from vramledger.gateway.config import GatewayConfig


def planned_from(config: GatewayConfig) -> Planned | None:
    """None where neither is named. Raises InputError for a plan without a pool, SourceError for a file that cannot be read."""
    if not config.manifest and not config.plan:
        return None
    if config.manifest and config.plan:
        raise InputError("give one of --plan and --manifest")
    from vramledger.documents.plan_reader import plan_of
    from vramledger.gateway.assembly import Planned
    from vramledger.gateway.live.capacity import Given
    from vramledger.gateway.memory_facts import planned_memory
    from vramledger.simulation.from_plan import layout_of, scheduler_of

    plan = plan_from(config.plan)[0] if config.plan else plan_of(manifest_from(config.manifest).document.plan)
    limits = scheduler_of(plan)
    given = Given(
        engine=plan.inputs.engine,
        layout=layout_of(plan),
        max_model_len=limits.max_model_len,
        max_running=limits.max_num_seqs,
        step_tokens=limits.max_num_batched_tokens,
        lag_steps=1 if limits.async_scheduling else 0,
    )
    return Planned(given=given, memory=planned_memory(plan))
