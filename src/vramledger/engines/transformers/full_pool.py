"""A full pool under transformers' continuous batching."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.engines.full_pool import FullPool, WhenFull


def full_pool(settings: Mapping[str, object]) -> FullPool:
    """A running request is reset: it waits again with what it generated as a part of its prompt."""
    del settings
    return FullPool(
        when_full=WhenFull.RECOMPUTE,
        source="transformers generation/continuous_batching, soft_reset_one_request",
    )
