"""The scheduler that settings ask for."""

from __future__ import annotations

from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.llamacpp import LlamacppScheduler
from vramledger.simulation.schedulers.protocol import Scheduler
from vramledger.simulation.schedulers.sglang import SglangScheduler
from vramledger.simulation.schedulers.static_batch import StaticBatchScheduler
from vramledger.simulation.schedulers.trtllm import TrtllmScheduler
from vramledger.simulation.schedulers.vllm import VllmScheduler
from vramledger.simulation.settings import SchedulerSettings, Scheduling


def scheduler_for(settings: SchedulerSettings, pool: BlockPool) -> Scheduler:
    """A scheduler over `pool`."""
    match settings.scheduling:
        case Scheduling.VLLM:
            return VllmScheduler(settings, pool)
        case Scheduling.SGLANG:
            return SglangScheduler(settings, pool)
        case Scheduling.TRTLLM_NO_EVICT | Scheduling.TRTLLM_MAX_UTILIZATION:
            return TrtllmScheduler(settings, pool)
        case Scheduling.STATIC_BATCH:
            return StaticBatchScheduler(settings, pool)
        case Scheduling.LLAMACPP:
            return LlamacppScheduler(settings, pool)
