"""Whether it is worth asking somebody who failed of late. Pure: time is passed in."""

from __future__ import annotations

FAILURES = 3
MISSING = 10
"""An endpoint that is not there is left alone so many times as long."""


class Circuit:
    """Open after three failures in a row, or one word that there is no such endpoint; then one try at a time, after a pause."""

    def __init__(self, pause_ms: int) -> None:
        self._pause_s = pause_ms / 1000
        self._failures = 0
        self._until: float | None = None

    def allows(self, now: float) -> bool:
        """Whether to ask now. Whoever is let through while the circuit is open holds others off until it has told how it went."""
        if self._until is None:
            return True
        if now < self._until:
            return False
        self._until = now + self._pause_s
        return True

    def would_allow(self, now: float) -> bool:
        """Whether `allows` would, without holding anybody off."""
        return self._until is None or now >= self._until

    def succeeded(self) -> None:
        self._failures = 0
        self._until = None

    def failed(self, now: float) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._until = now + self._pause_s

    def missing(self, now: float) -> None:
        self._failures = FAILURES
        self._until = now + MISSING * self._pause_s
