"""One quantity of a release, by which releases are compared and gated."""

from __future__ import annotations

from enum import StrEnum
from statistics import NormalDist

from msgspec import Struct

Value = int | float | str | None
SETTINGS = "settings."
"""What names of an engine's settings begin with."""


class Unit(StrEnum):
    BYTES = "bytes"
    TOKENS = "tokens"
    BLOCKS = "blocks"
    REQUESTS = "requests"
    RATE = "requests/s"
    SECONDS = "s"
    RATIO = "ratio"
    COUNT = "count"
    TEXT = "text"


class Group(StrEnum):
    """In the order of a page: what decides first."""

    VERDICT = "verdict"
    CAPACITY = "capacity"
    INPUTS = "inputs"
    POOL = "pool"
    KV_PER_TOKEN = "kv per token"  # noqa: S105 - a token of text
    WEIGHTS = "weights"
    PEAKS = "peaks"
    OWNERS = "owners"
    MEASURED = "measured"


class Bounds(Struct, frozen=True, kw_only=True):
    """Where a measured quantity lies with `confidence`. `is_at_least` says that nothing larger was tried: the upper end is open."""

    low: float
    high: float
    confidence: float
    is_at_least: bool = False

    def at(self, confidence: float, value: float) -> Bounds:
        """The same around `value` for another confidence, each side widened as a normal distribution's would be; no end below 0."""
        if confidence == self.confidence:
            return self
        scale = _z(confidence) / _z(self.confidence)
        return Bounds(
            low=max(value - (value - self.low) * scale, 0.0),
            high=value + (self.high - value) * scale,
            confidence=confidence,
            is_at_least=self.is_at_least,
        )


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


class Quantity(Struct, frozen=True, kw_only=True):
    """One quantity of one document; `bounds` where it was estimated from a sample."""

    name: str
    group: Group
    unit: Unit
    value: Value
    about: str
    bounds: Bounds | None = None
