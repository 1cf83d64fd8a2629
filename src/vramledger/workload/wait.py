"""A wait between two turns of a conversation."""

from __future__ import annotations

from typing import NamedTuple


class Wait(NamedTuple):
    """Request `number` came `wait_ns` after the end of the one it follows, and begins with `context_tokens` of it."""

    number: int
    context_tokens: int
    wait_ns: int
