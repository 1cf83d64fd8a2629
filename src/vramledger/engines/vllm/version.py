"""vLLM versions, as its own builds print them."""

from __future__ import annotations

import re

from msgspec import Struct

from vramledger.errors import FlagError

_VERSION = re.compile(
    r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.\d{1,4})?(?:[.-]?(?:a|b|rc|post|dev)\d*)*(?:\+[a-z0-9]+(?:[._-][a-z0-9]+)*)?"
)


class VllmVersion(Struct, frozen=True, order=True):
    """A release. Pre-releases and dev builds count as the release they lead to, a fourth number (0.10.1.1) as none."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def since(self, minor: int, patch: int = 0) -> bool:
        """Whether this is 0.`minor`.`patch` or newer."""
        return (self.major, self.minor, self.patch) >= (0, minor, patch)


NEWEST = VllmVersion(0, 33)
OLDEST = VllmVersion(0, 2)
OLDEST_READ = VllmVersion(0, 6, 6)
UNREAD_MINORS = (15,)
"""Minor releases whose sources were not read though those around them were."""


def rules_note(version: VllmVersion) -> str | None:
    """What to know about a version that the rules were not read from; None where they were."""
    if version.minor > NEWEST.minor:
        return f"vllm's sources were read up to {NEWEST}; {version} is planned by those rules"
    if version < OLDEST_READ:
        return f"vllm's sources were read from {OLDEST_READ} on; the rules for {version} are extrapolated from older logs"
    if version.minor in UNREAD_MINORS:
        near = f"0.{version.minor - 1} and 0.{version.minor + 1}"
        return (
            f"vllm's sources of 0.{version.minor} were not read; {version} is planned by the rules of {near}"
        )
    return None


def parse_version(text: str) -> VllmVersion:
    """The release of "0.27.1", "v0.11", "0.26.1rc1.dev156+g0eec856cc".

    Raises FlagError for anything else, for source builds without a release ("0.1.dev5926") and for
    releases outside what the rules cover.
    """
    match = _VERSION.fullmatch(text.strip().lower())
    if match is None:
        raise FlagError(f"vllm version {text!r} is not like 0.33.0", flag="engine", value=text)
    version = VllmVersion(int(match.group(1)), int(match.group(2)), int(match.group(3) or 0))
    if version < OLDEST or version.major > 0:
        raise FlagError(
            f"vllm {text}: rules cover {OLDEST} to {NEWEST} and newer 0.x", flag="engine", value=text
        )
    return version
