"""What is on a ledger because somebody asks for it, as a verdict speaks of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vramledger.ledger import Entry
from vramledger.units import format_bytes

BEYOND = " beyond the step's activation"
"""How the name of an entry ends that comes on top of what a step takes anyway."""


def spikes(entries: Iterable[Entry], names: Collection[str]) -> list[Entry]:
    """The entries that are there because somebody asks: those that end in `BEYOND`, and those of `names`."""
    return [entry for entry in entries if entry.name.endswith(BEYOND) or entry.name in names]


def spike_conditions(entries: Iterable[Entry], names: Collection[str], why: str) -> list[str]:
    """What a verdict with such requests rests on; `why` says how the engine sized itself without them."""
    return [f"{entry.name}: up to {format_bytes(entry.bytes.high)} {why}" for entry in spikes(entries, names)]


def outside_names(entries: Iterable[Entry], names: Collection[str]) -> str:
    """The same for a verdict against them: names and expected bytes, after a comma each."""
    return "".join(f", {entry.name} {format_bytes(entry.bytes.expected)}" for entry in spikes(entries, names))
