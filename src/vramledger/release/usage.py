"""How much of the KV pool a live engine uses, and how many requests run, by its metrics or its slots."""

from __future__ import annotations

import time
from collections.abc import Iterable

from vramledger.errors import VramledgerError
from vramledger.observation import Sample
from vramledger.telemetry.series import Source


class UsageProbe:
    """Asked again and again; each value None where no source tells it. `pool_tokens` is what usage in tokens is a share of."""

    def __init__(self, sources: Iterable[Source], *, pool_tokens: int) -> None:
        self._sources = tuple(sources)
        self._pool_tokens = max(pool_tokens, 1)

    def __call__(self) -> tuple[float | None, int | None]:
        """Share of the pool in use, and requests running."""
        samples = [sample for source in self._sources for sample in _read(source)]
        ratio = _most(samples, "kv_usage_ratio")
        if ratio is None:
            used = _most(samples, "kv_used_tokens")
            ratio = None if used is None else used / self._pool_tokens
        running = _most(samples, "running_requests")
        return ratio, None if running is None else int(running)


def _read(source: Source) -> list[Sample]:
    try:
        return list(source.read(time.time()))
    except VramledgerError:
        return []


def _most(samples: Iterable[Sample], name: str) -> float | None:
    return max((float(sample.value) for sample in samples if sample.name == name), default=None)
