"""Which lines of a chunk may hold one of many anchors, without looking at every line in Python.

Lines of a log repeat: with their digits deleted, most are equal to one seen before, and then what was found of that one
holds for them too. Deleting the same characters from an anchor keeps "is contained in", so a line that is passed over
holds none of them. What is new is searched for each anchor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_DIGITS = b"0123456789"
# A collector's JSON may write any other character as an escape.
_PLAIN = re.compile(r"[ !#$%()*+,\-.0-9:;=?@A-Z\[\]^_`a-z{|}~]+")
MOST_SHAPES = 50_000
MOST_SHAPE_BYTES = 16 * 2**20


class AnchorFinder:
    """Finds lines that may hold an anchor; it remembers the shapes of lines, within bounds."""

    def __init__(self, anchors: Iterable[str]) -> None:
        fragments = {fragment_of(anchor).encode().translate(None, _DIGITS) for anchor in anchors}
        self._everything = b"" in fragments
        self._fragments = tuple(
            sorted(
                (one for one in fragments if not any(other in one for other in fragments if other != one)),
                key=len,
            )
        )
        self._cold: set[bytes] = set()
        self._hot: set[bytes] = set()
        self._bytes = 0

    def lines(self, chunk: bytes) -> list[int]:
        """Numbers, from 0, of the lines (ended by newlines) of `chunk` that may hold an anchor."""
        shapes = chunk.translate(None, _DIGITS).split(b"\n")
        if self._everything:
            return list(range(len(shapes)))
        found = set(shapes)
        new = found - self._cold
        new -= self._hot
        if new:
            self._learn(new)
        hot = self._hot
        if hot.isdisjoint(found):
            return []
        return [number for number, shape in enumerate(shapes) if shape in hot]

    def _learn(self, new: set[bytes]) -> None:
        if self._bytes > MOST_SHAPE_BYTES or len(self._cold) + len(self._hot) > MOST_SHAPES:
            self._cold.clear()
            self._hot.clear()
            self._bytes = 0
        text = b"\n".join(new)
        self._bytes += len(text)
        present = [fragment for fragment in self._fragments if fragment in text]
        hot = {shape for shape in new if any(fragment in shape for fragment in present)}
        self._hot |= hot
        self._cold |= new - hot


def fragment_of(anchor: str) -> str:
    """The longest part of an anchor that stands in a line's bytes as it is, however a collector escaped it."""
    return max(_PLAIN.findall(anchor), key=len, default="")
