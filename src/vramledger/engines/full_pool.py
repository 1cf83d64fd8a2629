"""What an engine does with running requests when its pool has no block left for them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class WhenFull(StrEnum):
    """What becomes of requests that run."""

    RECOMPUTE = "recompute"
    """Some go back to the queue with what they generated, and their contexts are computed anew: time is lost, no request is."""
    NEVER = "never"
    """It does not come to that: a request is let in only where all that it may grow to has room."""
    FAIL = "fail"
    """Requests end with an error."""


class FullPool(Struct, frozen=True, kw_only=True):
    """An engine's answer to a full pool, and where it is written."""

    when_full: WhenFull
    source: str
