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

    def __init__(self, num_blocks: int) -> None:
        self._shelves: dict[tuple[int, int], Shelf] = {}
        self._shelf_of: list[Shelf | None] = [None] * num_blocks
        self._key_of = [0] * num_blocks

    def shelf(self, group: int, boundary: int) -> Shelf:
        """What can be found there; not to be changed by the caller."""
        return self._shelves.get((group, boundary), _NOTHING)

    def find(self, group: int, boundary: int, key: int) -> int | None:
        entry = self.shelf(group, boundary).get(key)
        return next(iter(entry)) if isinstance(entry, dict) else entry

    def holds(self, block: int) -> bool:
        """Whether the block's content can be found."""
        return self._shelf_of[block] is not None

    def add(self, block: int, group: int, boundary: int, key: int) -> None:
        shelf = self._shelves.setdefault((group, boundary), {})
        entry = shelf.get(key)
        if entry is None:
            shelf[key] = block
        elif isinstance(entry, dict):
            entry[block] = None
        else:
            shelf[key] = {entry: None, block: None}
        self._shelf_of[block] = shelf
        self._key_of[block] = key

    def drop(self, block: int) -> bool:
        """Forgets the block's content; whether there was any to be found."""
        shelf = self._shelf_of[block]
        if shelf is None:
            return False
        key = self._key_of[block]
        entry = shelf[key]
        if isinstance(entry, dict) and len(entry) > 1:
            del entry[block]
        else:
            del shelf[key]
        self._shelf_of[block] = None
        return True
