"""A full pool under TensorRT-LLM, by its capacity policy."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.engines.full_pool import FullPool, WhenFull


def full_pool(settings: Mapping[str, object]) -> FullPool:
    """The default reserves all that a request may grow to; MAX_UTILIZATION pauses the requests that started last."""
    policy = str(settings.get("capacity_scheduler_policy", "GUARANTEED_NO_EVICT")).upper()
    return FullPool(
        when_full=WhenFull.RECOMPUTE if policy == "MAX_UTILIZATION" else WhenFull.NEVER,
        source=f"TensorRT-LLM cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp, {policy}",
    )
