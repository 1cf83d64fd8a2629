"""What is particular to an engine about starting and sleeping: what it wants to find free, and which entries of its
ledger go to the host or are dropped while it sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from vramledger.ledger import Entry, Owner

if TYPE_CHECKING:
    from vramledger.answer import Plan


class Held(Struct, frozen=True):
    """Entries of one owner: all of them, or the one called `name`."""

    owner: Owner
    name: str = ""

    def matches(self, entry: Entry) -> bool:
        return entry.owner is self.owner and self.name in ("", entry.name)


class SleepLevel(Struct, frozen=True, kw_only=True):
    """One way to sleep, by the engine's own name for it.

    `offloaded` entries are copied to pinned host memory before their device memory is released, `discarded` ones are
    only released; `kept` ones and every other entry stay on the device. Where an entry is named more than once, the
    more particular name decides. `needs` is what the engine must have been started with.
    """

    name: str
    needs: str
    offloaded: tuple[Held, ...]
    discarded: tuple[Held, ...]
    source: str
    kept: tuple[Held, ...] = ()

    def goes_to_host(self, entry: Entry) -> bool:
        offloaded = self._rank(self.offloaded, entry)
        return offloaded > max(self._rank(self.discarded, entry), self._rank(self.kept, entry))

    def is_released(self, entry: Entry) -> bool:
        """Whether the entry's device memory is given back, with or without a copy on the host."""
        return self._rank(self.offloaded + self.discarded, entry) > self._rank(self.kept, entry)

    @staticmethod
    def _rank(rules: tuple[Held, ...], entry: Entry) -> int:
        """0: not named, 1: its owner is, 2: the entry itself is."""
        return max((2 if rule.name else 1 for rule in rules if rule.matches(entry)), default=0)


class Lifecycle(Protocol):
    """What an engine's `lifecycle` module offers."""

    def sleep_levels(self, version: str) -> tuple[SleepLevel, ...]:
        """Its ways to give back memory without ending, none where a version has none."""
        ...

    def free_bytes_required(self, plan: Plan) -> int:
        """What it must find free on each device when it starts, 0 where it takes what there is."""
        ...
