"""Which lines of a chunk may hold one of many anchors, without looking at every line in Python.

An automaton (ahocorasick_rs) goes through the bytes once. Where the library has no wheel lines are told by their
shapes: with their digits deleted, most lines of a log are equal to one seen before, and then what was found of that one
holds for them too. Deleting the same characters from an anchor keeps "is contained in", so a line that is passed over
holds none of them. What is new is searched for each anchor, which is slow where no two lines are alike (prompts).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import compress, count
from typing import Any, Protocol, TypeVar

_DIGITS = b"0123456789"
# A collector's JSON may write any other character as an escape.
_PLAIN = re.compile(r"[ !#$%()*+,\-.0-9:;=?@A-Z\[\]^_`a-z{|}~]+")
MOST_SHAPES = 50_000
MOST_SHAPE_BYTES = 16 * 2**20
_SPARSE = 64
_STRIDE = 16 * 1024

Span = tuple[int, int]
T = TypeVar("T", str, bytes)


class AnchorFinder(Protocol):
    def spans(self, chunk: bytes) -> list[Span]:
        """Beginnings and ends, in their order, of the lines of `chunk` that may hold an anchor (an end is the place of
        the newline, or the chunk's end)."""
        ...

    def exact(self, chunk: bytes) -> list[Span]:
        """Those that hold a fragment of an anchor, whichever way they are found."""
        ...


def anchor_finder(anchors: Iterable[str], *, library: bool = True) -> AnchorFinder:
    """The fastest finder there is; without `library` the one that needs none."""
    fragments = {fragment_of(anchor) for anchor in anchors}
    if "" in fragments:
        return _Everything()
    found = automaton([one.encode() for one in _shortest(fragments)]) if library else None
    return _Shapes(fragments) if found is None else _Automaton(found)


def automaton(texts: list[bytes]) -> Any:
    """One that finds all of `texts` at once; None without the library or without texts."""
    try:
        import ahocorasick_rs
    except ImportError:
        return None
    if not texts or not all(texts):
        return None
    return ahocorasick_rs.BytesAhoCorasick(texts, implementation=ahocorasick_rs.Implementation.DFA)


def without_digits(data: bytes) -> bytes:
    """What lines have in common that differ in their numbers only."""
    return data.translate(None, _DIGITS)


def fragment_of(anchor: str) -> str:
    """The longest part of an anchor that stands in a line's bytes as it is, however a collector escaped it."""
    return max(_PLAIN.findall(anchor), key=len, default="")


class _Everything:
    """For an anchor that may be written in any way."""

    def spans(self, chunk: bytes) -> list[Span]:
        return _spans_of(chunk, range(chunk.count(b"\n") + 1))

    def exact(self, chunk: bytes) -> list[Span]:
        return self.spans(chunk)


class _Automaton:
    def __init__(self, found: Any) -> None:
        self._automaton = found

    def spans(self, chunk: bytes) -> list[Span]:
        out: list[Span] = []
        passed = -1
        for _, found, _ in self._automaton.find_matches_as_indexes(chunk):
            if found > passed:
                begin = chunk.rfind(b"\n", 0, found) + 1
                passed = chunk.find(b"\n", found)
                if passed < 0:
                    passed = len(chunk)
                out.append((begin, passed))
        return out

    def exact(self, chunk: bytes) -> list[Span]:
        return self.spans(chunk)


class _Shapes:
    def __init__(self, fragments: Iterable[str]) -> None:
        fragments = list(fragments)
        self._whole = _shortest([fragment.encode() for fragment in fragments])
        self._fragments = sorted(
            _shortest({without_digits(fragment.encode()) for fragment in fragments}), key=len
        )
        self._cold: set[bytes] = set()
        self._hot: set[bytes] = set()
        self._bytes = 0

    def spans(self, chunk: bytes) -> list[Span]:
        shapes = without_digits(chunk).split(b"\n")
        found = set(shapes)
        if self._bytes > MOST_SHAPE_BYTES or len(self._cold) + len(self._hot) > MOST_SHAPES:
            self._cold.clear()
            self._hot.clear()
            self._bytes = 0
        new = found - self._cold
        new -= self._hot
        if new:
            self._learn(new)
        if self._hot.isdisjoint(found):
            return []
        return _spans_of(chunk, list(compress(count(), map(self._hot.__contains__, shapes))))

    def exact(self, chunk: bytes) -> list[Span]:
        return [span for span in self.spans(chunk) if self._holds(chunk[slice(*span)])]

    def _holds(self, line: bytes) -> bool:
        return any(fragment in line for fragment in self._whole)

    def _learn(self, new: set[bytes]) -> None:
        text = b"\n".join(new)
        self._bytes += len(text)
        present = [fragment for fragment in self._fragments if fragment in text]
        hot = {shape for shape in new if any(fragment in shape for fragment in present)}
        self._hot |= hot
        self._cold |= new - hot


def _shortest(fragments: Iterable[T]) -> list[T]:
    """Without those that contain another."""
    return list(_shortest_of(frozenset(fragments)))


@lru_cache(maxsize=64)
def _shortest_of(kept: frozenset[T]) -> tuple[T, ...]:
    return tuple(one for one in kept if not any(other in one for other in kept if other != one))


def _spans_of(chunk: bytes, numbers: list[int] | range) -> list[Span]:
    """The lines of these numbers, from 0."""
    if len(numbers) * _SPARSE * 100 > len(chunk):
        out = []
        position = passed = 0
        lines = chunk.split(b"\n")
        for number in numbers:
            position += sum(map(len, lines[passed:number])) + number - passed
            out.append((position, position + len(lines[number])))
            position += len(lines[number]) + 1
            passed = number + 1
        return out
    return _sparse_spans(chunk, numbers)


def _sparse_spans(chunk: bytes, numbers: Iterable[int]) -> list[Span]:
    out = []
    position = passed = 0  # newlines before `position`
    for number in numbers:
        while passed < number:
            here = chunk.count(b"\n", position, position + _STRIDE)
            if passed + here < number:
                position += _STRIDE
                passed += here
                continue
            while passed < number:
                position = chunk.find(b"\n", position) + 1
                passed += 1
        end = chunk.find(b"\n", position)
        end = len(chunk) if end < 0 else end
        out.append((position, end))
        position = min(end + 1, len(chunk))
        passed = number + 1
    return out
