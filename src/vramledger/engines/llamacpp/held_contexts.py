"""Contexts that are to be there when their tool comes back: in idle slots, then in the prompt cache on the host.

Source: llama.cpp tools/server (get_available_slot takes the slot used longest ago; server_prompt_cache saves what a slot held;
a full unified pool purges idle slots).
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.findings import Finding
from vramledger.engines.llamacpp.settings import DEFAULT_PROMPT_CACHE_MIB, Settings
from vramledger.pool import KvPool
from vramledger.units import MIB, format_bytes


class Held(Struct, frozen=True, kw_only=True):
    """Where the contexts are: how many in slots that nobody else uses, how many beyond, and the bytes of one."""

    tokens: int
    in_slots: int
    beyond: int
    each_bytes: int
    limit_bytes: int | None

    @property
    def is_lost(self) -> bool:
        """Whether the prompt cache does not hold what finds no slot."""
        return self.limit_bytes is not None and self.beyond * self.each_bytes > self.limit_bytes


def held(settings: Settings, pool: KvPool | None, requests: int) -> Held | None:
    """Beside `requests` at once; None where nothing is held or nothing is cached."""
    asked = settings.flags.requests
    if not asked.held_contexts or pool is None:
        return None
    length = settings.context_per_sequence
    tokens = min(asked.held_tokens or length, length)
    slots = max(settings.slots - requests, 0)
    if settings.streams == 1:
        slots = min(slots, max(settings.context - requests * length, 0) // tokens)
    in_slots = min(asked.held_contexts, slots)
    windows = sum(
        group.page_bytes * group.num_layers * min(tokens, group.blocks_per_request)
        for group in pool.groups
        if group.kind == "kv_swa"
    )
    return Held(
        tokens=tokens,
        in_slots=in_slots,
        beyond=asked.held_contexts - in_slots,
        each_bytes=tokens * pool.bytes_per_token + windows + pool.state_bytes_per_sequence,
        limit_bytes=_limit(settings),
    )


def _limit(settings: Settings) -> int | None:
    """Bytes of the prompt cache, None for no limit."""
    if not settings.build.has_prompt_cache:
        return 0
    given = settings.flags.cache_ram
    mib = DEFAULT_PROMPT_CACHE_MIB if given is None else given
    return None if mib < 0 else mib * MIB


def held_findings(found: Held | None) -> list[Finding]:
    """A context that finds neither is computed anew."""
    if found is None or not found.is_lost:
        return []
    text = (
        f"{found.beyond:,} of the held contexts find no idle slot, and {format_bytes(found.beyond * found.each_bytes)} of them "
        f"no room in a prompt cache of {format_bytes(found.limit_bytes or 0)}: raise -np and -c, or --cache-ram"
    )
    return [Finding(certain=True, text=text)]


def held_conditions(found: Held | None) -> list[str]:
    """Where the contexts are."""
    if found is None:
        return []
    return [
        f"{found.in_slots:,} held contexts of {found.tokens:,} tokens stay in idle slots"
        + (
            f", {found.beyond:,} in the prompt cache on the host, {format_bytes(found.beyond * found.each_bytes)}"
            if found.beyond
            else ""
        )
    ]
