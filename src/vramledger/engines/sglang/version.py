"""SGLang versions, as its own builds print them."""

from __future__ import annotations

import re

from msgspec import Struct

from vramledger.errors import FlagError

_VERSION = re.compile(
    r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.post(\d{1,4}))?(?:[.-]?(?:a|b|rc|dev)\d*)*(?:\+[a-z0-9]+(?:[._-][a-z0-9]+)*)?"
)


class SglangVersion(Struct, frozen=True, order=True):
    """A release, post releases apart. Pre-releases and dev builds count as the release they lead to."""

    major: int
    minor: int
    patch: int = 0
    post: int = 0

    def __str__(self) -> str:
        post = f".post{self.post}" if self.post else ""
        return f"{self.major}.{self.minor}.{self.patch}{post}"

    def since(self, minor: int, patch: int = 0) -> bool:
        """Whether this is 0.`minor`.`patch` or newer."""
        return (self.major, self.minor, self.patch) >= (0, minor, patch)


NEWEST = SglangVersion(0, 5, 23)
OLDEST = SglangVersion(0, 1, 17)
READ = (
    "0.1.17", "0.2.5", "0.2.10", "0.2.13", "0.2.15", "0.3.0", "0.4.3.post4", "0.4.5", "0.4.6.post2", "0.4.6.post5", "0.4.7.post1", "0.4.9", "0.5.2", "0.5.3", "0.5.4", "0.5.6", "0.5.9", "0.5.10", "0.5.12", "0.5.13", "0.5.14", "0.5.15",
    "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23",
)  # fmt: skip
"""Releases whose sources the rules were read from; one between two of them runs by the older one's."""


def rules_note(version: SglangVersion) -> str | None:
    """What to know about a version that the rules were not read from; None where they were."""
    if version.minor > NEWEST.minor or version > NEWEST:
        return f"sglang's sources were read up to {NEWEST}; {version} is planned by those rules"
    if not version.since(4, 6):
        return f"of sglang {version} only the sizing of its pool was read, not its models"
    return None


def parse_version(text: str) -> SglangVersion:
    """The release of "0.5.23", "v0.4.6.post5", "0.5.10rc0".

    Raises FlagError for anything else and for releases outside what the rules cover.
    """
    match = _VERSION.fullmatch(text.strip().lower())
    if match is None:
        raise FlagError(f"sglang version {text!r} is not like 0.5.23", flag="engine", value=text)
    major, minor, patch, post = (int(part or 0) for part in match.groups())
    version = SglangVersion(major, minor, patch, post)
    if version < OLDEST or version.major > 0:
        raise FlagError(
            f"sglang {text}: rules cover {OLDEST} to {NEWEST} and newer 0.x", flag="engine", value=text
        )
    return version
