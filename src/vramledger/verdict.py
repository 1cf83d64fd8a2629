"""A verdict never says "fits" alone."""

from __future__ import annotations

from msgspec import Struct


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether the plan holds.

    `holds` is True (under `conditions`), False (`shortfall_bytes` says by how much at least, 0
    where no bytes would help; `remedies` what would close it, best first) or None (`missing` says what would have to be known).
    `assumed` lists entries that rest on a default nobody checked.
    """

    holds: bool | None
    summary: str
    conditions: tuple[str, ...] = ()
    shortfall_bytes: int = 0
    remedies: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
