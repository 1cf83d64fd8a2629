"""Prompts on their way: what a request shares with them will be in the cache when its turn comes."""

from __future__ import annotations

from collections.abc import Hashable

from vramledger.admission.candidate import Candidate

_MOST = 8
"""Prompts of one beginning that are looked at, the latest ones."""


class Coming:
    """Requests that wait or whose prompts are being computed, by the first block of their prompts. A turn that is sent before the one before it
    has been read shares nearly all of its prompt with it.
    """

    def __init__(self) -> None:
        self._by_first: dict[tuple[int, Hashable], dict[int, Candidate]] = {}
        self._firsts: dict[int, tuple[int, Hashable]] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, candidate: Candidate) -> None:
        """It waits, or is let in."""
        if candidate.keys and candidate.identity not in self._firsts:
            first = candidate.boundary, candidate.keys[0]
            self._firsts[candidate.identity] = first
            self._by_first.setdefault(first, {})[candidate.identity] = candidate

    def remove(self, identity: int) -> None:
        """Its prompt is computed, or will not be; nothing for one that is not here."""
        first = self._firsts.pop(identity, None)
        if first is not None:
            group = self._by_first[first]
            del group[identity]
            if not group:
                del self._by_first[first]

    def shared_blocks(self, candidate: Candidate) -> int:
        """Leading blocks that the prompt of some other request on its way has as well."""
        if not candidate.keys or not self._by_first:
            return 0
        group = self._by_first.get((candidate.boundary, candidate.keys[0]))
        if group is None:
            return 0
        others = [one for name, one in group.items() if name != candidate.identity][-_MOST:]
        return max((_common(candidate.keys, one.keys) for one in others), default=0)


def _common(keys: tuple[Hashable, ...], others: tuple[Hashable, ...]) -> int:
    """Leading keys that are equal: those before an equal one are, for keys are chained."""
    low, high = 0, min(len(keys), len(others))
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle - 1] == others[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
