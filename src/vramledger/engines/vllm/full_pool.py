"""A full pool under vLLM."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.engines.full_pool import FullPool, WhenFull


def full_pool(settings: Mapping[str, object]) -> FullPool:
    """The last of the running requests, or of those of the worst priority, is preempted; nothing is swapped since V1."""
    del settings
    return FullPool(
        when_full=WhenFull.RECOMPUTE, source="vllm v1/core/sched/scheduler.py, schedule and _preempt_request"
    )
