"""A full pool under SGLang."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.engines.full_pool import FullPool, WhenFull


def full_pool(settings: Mapping[str, object]) -> FullPool:
    """Decoding requests are retracted until a step has room, those with least output first."""
    del settings
    return FullPool(
        when_full=WhenFull.RECOMPUTE,
        source="sglang srt/managers/schedule_batch.py, ScheduleBatch.retract_decode",
    )
