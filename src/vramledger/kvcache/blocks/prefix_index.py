"""Which blocks hold which content: the index that prefixes are found in."""

from __future__ import annotations

Shelf = dict[int, "int | dict[int, None]"]
"""Blocks of one group and one boundary by key: a block, or several of the same content in the order they were filled."""

_NOTHING: Shelf = {}


class PrefixIndex:
    """Content by group, boundary and key.

    Sequences that computed the same content side by side leave several blocks under one key; the oldest is the one
    that is found, as in vLLM, which never merges them (a block table only grows at its end).
    """

    def __init__(self) -> None:
        self._shelves: dict[tuple[int, int], Shelf] = {}
        self._place_of: dict[int, tuple[Shelf, int]] = {}

    def shelf(self, group: int, boundary: int) -> Shelf:
        """What can be found there; not to be changed by the caller."""
        return self._shelves.get((group, boundary), _NOTHING)

    def find(self, group: int, boundary: int, key: int) -> int | None:
        entry = self.shelf(group, boundary).get(key)
        return next(iter(entry)) if isinstance(entry, dict) else entry

    def holds(self, block: int) -> bool:
        """Whether the block's content can be found."""
        return block in self._place_of

    def add(self, block: int, group: int, boundary: int, key: int) -> None:
        shelf = self._shelves.setdefault((group, boundary), {})
        entry = shelf.get(key)
        if entry is None:
            shelf[key] = block
        elif isinstance(entry, dict):
            entry[block] = None
        else:
            shelf[key] = {entry: None, block: None}
        self._place_of[block] = shelf, key

    def drop(self, block: int) -> bool:
        """Forgets the block's content; whether there was any to be found."""
        place = self._place_of.pop(block, None)
        if place is None:
            return False
        shelf, key = place
        entry = shelf[key]
        if isinstance(entry, dict) and len(entry) > 1:
            del entry[block]
        else:
            del shelf[key]
        return True
