"""When the engine is asked for a prompt's tokens, and what it may cost."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Ask(StrEnum):
    """When an engine's tokenize endpoint is asked; each question is a round trip before the request itself."""

    NEVER = "never"
    UNSURE = "unsure"
    """When what else is known leaves more open than `unsure_tokens`, or when identities of blocks are wanted."""
    ALWAYS = "always"


class CountingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` is named as `vramledger.engines` does; without one nobody is asked."""

    engine: str = ""
    ask: Ask = Ask.UNSURE
    unsure_tokens: int = 256
    keys: bool = False
    """Whether the policy wants the identities of leading full blocks."""
    block_size: int = 16
    context_tokens: int | None = None
    """The longest prompt that the engine takes; longer ones never reach its pool."""
    within_ms: int = 250
    """From a request's arrival to the engine's count; the learned estimate serves after that."""
    waiting: int = 32
    """Requests that may be waiting for a count at once; others go by the estimate."""
    quantile: float = 0.99
    """The share of prompts that are no longer than `most_tokens`, once enough of them were seen."""
    pause_ms: int = 30_000
    """How long an engine is not asked after it failed three times; ten times as long where it has no such endpoint."""
    longest_characters: int = 4_000_000
    """Above this nobody counts: the estimate serves."""
    cached_prompts: int = 4096
    cached_keys: int = 500_000
