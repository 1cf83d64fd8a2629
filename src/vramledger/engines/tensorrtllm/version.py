"""TensorRT-LLM releases and what changed between them.

Source: tensorrt_llm/_torch/pyexecutor/_util.py and resource_manager.py, cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp
of 1.0 to the newest main; older releases by their documentation and start-up logs.
"""

from __future__ import annotations

import re

from msgspec import Struct

from vramledger.errors import FlagError

_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[.-]?(?:a|b|rc|post|dev)\d*)*")


class TrtLlmVersion(Struct, frozen=True, order=True):
    """A release. Pre-releases and dev builds count as the release they lead to."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def since(self, major: int, minor: int) -> bool:
        return (self.major, self.minor) >= (major, minor)

    @property
    def floors_blocks(self) -> bool:
        """Whether the PyTorch back end rounds tokens down to blocks; before, and in the C++ manager, up."""
        return self.since(1, 3)

    @property
    def default_backend(self) -> str:
        return "pytorch" if self.since(1, 0) else "tensorrt"

    @property
    def default_tokens_per_block(self) -> int:
        """32; 64 up to 0.18, as the logs of that time print."""
        return 32 if self.since(0, 19) else 64


NEWEST = TrtLlmVersion(1, 3)
OLDEST = TrtLlmVersion(0, 5)
OLDEST_READ = TrtLlmVersion(1, 0)


def parse_version(text: str) -> TrtLlmVersion:
    """The release of "1.2.1", "v1.1.0rc3", "0.13.0.dev2024082000".

    Raises FlagError for anything else and for releases before 0.5 or from 2.0 on.
    """
    match = _VERSION.fullmatch(text.strip().lower())
    if match is None:
        raise FlagError(f"tensorrt-llm version {text!r} is not like {NEWEST}", flag="engine", value=text)
    version = TrtLlmVersion(int(match.group(1)), int(match.group(2)), int(match.group(3) or 0))
    if version < OLDEST or version.major > 1:
        raise FlagError(
            f"tensorrt-llm {text}: rules cover {OLDEST} to {NEWEST} and newer 1.x", flag="engine", value=text
        )
    return version


def rules_note(version: TrtLlmVersion) -> str | None:
    """What to know about a version that the rules were not read from."""
    if version > NEWEST and version.minor > NEWEST.minor:
        return f"tensorrt-llm's sources were read up to {NEWEST}; {version} is planned by those rules"
    if version < OLDEST_READ:
        return f"tensorrt-llm's sources were read from {OLDEST_READ} on; the rules for {version} are those of its logs"
    return None
