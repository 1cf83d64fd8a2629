"""The arithmetic of SGLang's messages about its pools: a step that found no room, and books that do not add up."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from vramledger.diagnosis.messages import sglang
from vramledger.diagnosis.messages.readings import whole_of
from vramledger.observation import Observation

_BRACKETED = re.compile(r"\[([A-Za-z0-9_-]{1,40})\]")
_PAIR = re.compile(r"(?:self\.)?([A-Za-z_][A-Za-z_.]{0,100}?)(\(\))?=(-?[0-9]{1,18})(?![0-9.])")
# What a name ends in, in the order in which it is preferred: a sum that was printed under the plain name comes last.
_FIELDS = (
    (
        "available",
        (
            "available_token_size",
            "allocator.available_size()",
            "available_size()",
            "available_size",
            "available",
        ),
    ),
    ("evictable", ("evictable_size()", "evictable_size", "evictable")),
    ("protected", ("protected_size()", "protected_size", "protected")),
    ("session_held", ("session_held",)),
    ("uncached", ("uncached",)),
    ("total", ("max_total_num_tokens", "allocator.size", "_pool.size", "total_size", "total")),
)


class PoolShortage(Struct, frozen=True, kw_only=True):
    """A step's request of a pool, in tokens; None for what was not printed.

    `available_tokens` is what was free or could be evicted, `swa_available_tokens` the same of the layers with a window,
    `available_states` of the slots for recurrent states, each of which may be what ran short.
    Source: sglang srt/mem_cache/allocation.py.
    """

    requested_tokens: int | None
    available_tokens: int | None
    free_tokens: int | None
    evictable_tokens: int | None
    swa_available_tokens: int | None
    available_states: int | None


class PoolBooks(Struct, frozen=True, kw_only=True):
    """One pool's books at rest, in tokens or slots; None for what was not printed, 0 counts as told."""

    pool: str
    total: int | None = None
    available: int | None = None
    evictable: int | None = None
    protected: int | None = None
    session_held: int | None = None
    uncached: int | None = None

    @property
    def free_or_evictable(self) -> int | None:
        """What a step could have had; None where one of the two was not told."""
        if self.available is None or self.evictable is None:
            return None
        return self.available + self.evictable

    @property
    def loss(self) -> int | None:
        """What is neither free nor held by anyone; negative where something is counted twice. None where the total
        or what is free was not told."""
        if self.total is None or self.available is None:
            return None
        held = (self.evictable, self.protected, self.session_held, self.uncached)
        return self.total - self.available - sum(item or 0 for item in held)


def pool_shortage(observation: Observation) -> PoolShortage | None:
    """The figures of a step that found no room; None for an observation of another kind."""
    values = observation.values
    if values.get("message") != sglang.POOL.name:
        return None
    return PoolShortage(
        requested_tokens=whole_of(values, "requested_tokens"),
        available_tokens=whole_of(values, "available_tokens"),
        free_tokens=whole_of(values, "free_tokens"),
        evictable_tokens=whole_of(values, "evictable_tokens"),
        swa_available_tokens=whole_of(values, "swa_available_tokens"),
        available_states=whole_of(values, "available_states_count"),
    )


def pool_books(observation: Observation) -> tuple[PoolBooks, ...]:
    """Every pool of a leak message; () for an observation of another kind."""
    values = observation.values
    if values.get("message") != sglang.POOL_LEAK.name:
        return ()
    text = values.get("books")
    if not isinstance(text, str):
        return ()
    pairs: dict[str, dict[str, int]] = {}
    for name, called, number, pool in _pairs(text):
        pairs.setdefault(pool or _pool_of(name), {})[name + called] = int(number)
    return tuple(_books(pool, found) for pool, found in pairs.items())


def _pairs(text: str) -> list[tuple[str, str, str, str]]:
    """Names, whether they are called, their numbers, and the pool in brackets before them, if any."""
    heads = [(match.start(), match[1]) for match in _BRACKETED.finditer(text)]
    found = []
    for match in _PAIR.finditer(text):
        before = [name for start, name in heads if start < match.start()]
        found.append((match[1], match[2] or "", match[3], before[-1] if before else ""))
    return found


def _pool_of(name: str) -> str:
    return next((pool for pool in ("mamba", "swa") if pool in name), "full")


def _books(pool: str, pairs: Mapping[str, int]) -> PoolBooks:
    chosen: dict[str, int] = {}
    for field, endings in _FIELDS:
        for ending in endings:
            values = [value for name, value in pairs.items() if name.endswith(ending)]
            if values:
                chosen[field] = values[0]
                break
    return PoolBooks(pool=pool, **chosen)
