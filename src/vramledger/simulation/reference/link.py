"""The link over which a prefill replica sends what it computed."""

from __future__ import annotations

from vramledger.simulation.step_model import PS_PER_S
from vramledger.units import ceil_div


class Link:
    """One transfer after another; without a bandwidth they take no time."""

    def __init__(self, kv_bytes_per_token: int, bytes_per_s: int) -> None:
        self._token_bytes = kv_bytes_per_token
        self._bytes_per_s = bytes_per_s
        self._free_ps = 0

    def arrival_ps(self, tokens: int, now_ps: int) -> int:
        """When the KV of `tokens`, ready now, is at the other end."""
        if self._bytes_per_s:
            start_ps = max(now_ps, self._free_ps)
            self._free_ps = start_ps + ceil_div(tokens * self._token_bytes * PS_PER_S, self._bytes_per_s)
            return self._free_ps
        return now_ps
