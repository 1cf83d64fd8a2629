"""Releases of transformers, and which rules size the paged cache in each.

Source: transformers generation/continuous_batching/cache.py (`PagedAttentionMemoryHandler`) of 5.0 to 5.5, 5.6 to 5.12,
5.13 to 5.17 and 5.18 to 5.23.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

from vramledger.errors import FlagError

_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[.-]?(?:a|b|rc|post|dev)\d*)?")


class Rules(StrEnum):
    """How blocks and batch tokens follow from memory: both at once (in two ways), blocks for a batch, sectors for a
    batch."""

    PAIRED = "paired"
    CAPPED = "capped"
    POLYNOMIAL = "polynomial"
    SECTORS = "sectors"


class TransformersVersion(Struct, frozen=True, order=True):
    """A release."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def since(self, minor: int) -> bool:
        """Whether this is 5.`minor` or newer."""
        return (self.major, self.minor) >= (5, minor)

    @property
    def rules(self) -> Rules:
        if self.since(18):
            return Rules.SECTORS
        if self.since(13):
            return Rules.POLYNOMIAL
        return Rules.CAPPED if self.since(6) else Rules.PAIRED


NEWEST = TransformersVersion(5, 23)


def parse_version(text: str) -> TransformersVersion:
    """The release of "5.23.0", "v5.0", "5.18".

    Raises FlagError for anything else and for releases before 5.0 or from 6.0 on.
    """
    match = _VERSION.fullmatch(text.strip().lower())
    if match is None:
        raise FlagError(f"transformers version {text!r} is not like {NEWEST}", flag="engine", value=text)
    version = TransformersVersion(int(match.group(1)), int(match.group(2)), int(match.group(3) or 0))
    if version.major != 5:
        raise FlagError(
            f"transformers {text}: the rules here are those of 5.0 to {NEWEST} and newer 5.x",
            flag="engine",
            value=text,
        )
    return version


def rules_note(version: TransformersVersion) -> str | None:
    """What to know about a release newer than the sources that were read."""
    if version.minor > NEWEST.minor:
        return f"transformers' sources were read up to {NEWEST}; {version} is planned by those rules"
    return None
