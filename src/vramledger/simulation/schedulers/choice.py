"""The scheduler that settings ask for."""

from __future__ import annotations

from vramledger.errors import InputError
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.protocol import Scheduler
from vramledger.simulation.schedulers.vllm import VllmScheduler
from vramledger.simulation.settings import SchedulerSettings, Scheduling


def scheduler_for(settings: SchedulerSettings, pool: BlockPool) -> Scheduler:
    """A scheduler over `pool`. Raises InputError for rules that are not written."""
    if settings.scheduling is Scheduling.VLLM:
        return VllmScheduler(settings, pool)
    raise InputError(f"no scheduler {settings.scheduling.value}", scheduling=settings.scheduling.value)
