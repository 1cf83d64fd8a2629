"""How long the engine takes, learned from what passes: an `admission.service_time.ServiceTime` that grows old with its engine."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import median

from vramledger.admission.service_time import Load

PS_PER_NS = 1_000
REMEMBERED = 32
LEAST = 5
"""Observations without which nothing is foretold."""


class _Medians:
    """Medians of the latest observations, by the size of what they were made at: classes are powers of two."""

    def __init__(self) -> None:
        self._classes: dict[int, deque[tuple[int, int]]] = {}
        self._points: list[tuple[int, int]] | None = []

    def add(self, size: int, value: int) -> None:
        name = size.bit_length()
        if name not in self._classes:
            self._classes[name] = deque(maxlen=REMEMBERED)
        self._classes[name].append((size, value))
        self._points = None

    def points(self) -> list[tuple[int, int]]:
        """(size, value) by size; a larger size never has a smaller value."""
        if self._points is None:
            points: list[tuple[int, int]] = []
            for name in sorted(self._classes):
                rows = self._classes[name]
                if len(rows) >= LEAST:
                    value = round(median(value for _, value in rows))
                    size = round(median(size for size, _ in rows))
                    points.append((size, max(value, points[-1][1] if points else 0)))
            self._points = points
        return self._points

    def at(self, size: int) -> int:
        """Between classes on a line, below the smallest the smallest's, beyond the largest as the largest from its size to zero; 0 while unknown."""
        points = self.points()
        if not points:
            return 0
        if size <= points[0][0]:
            return points[0][1]
        for (low, low_value), (high, high_value) in pairwise(points):
            if size <= high:
                return low_value + (high_value - low_value) * (size - low) // max(1, high - low)
        size_known, value = points[-1]
        first_size, first_value = points[0]
        if len(points) > 1 and size_known > first_size:
            return value + (value - first_value) * (size - size_known) // (size_known - first_size)
        return value


class LearnedTimes:
    """Times to the first token by the prompt tokens that were to be computed until then, and times between tokens by how many sequences ran.

    Medians of the latest few in each class: a stall does not move them, a change of the engine's pace does soon. Before enough is known all times
    are 0, so that no deadline is judged but one that is past.
    """

    def __init__(self) -> None:
        self._first = _Medians()
        self._token = _Medians()

    def first_token(self, work_tokens: int, took_ns: int) -> None:
        """A request that had so many prompt tokens before it, its own among them, had its first token after so long."""
        if took_ns > 0:
            self._first.add(max(1, work_tokens), took_ns * PS_PER_NS)

    def tokens(self, decode_seqs: int, output_tokens: int, took_ns: int) -> None:
        """So many tokens after the first took so long beside `decode_seqs` others."""
        if output_tokens > 0 and took_ns > 0:
            self._token.add(decode_seqs + 1, took_ns * PS_PER_NS // output_tokens)

    def first_token_ps(self, uncached_tokens: int, prompt_tokens: int, load: Load) -> int:
        del prompt_tokens
        return self._first.at(load.prefill_tokens + uncached_tokens)

    def token_ps(self, load: Load) -> int:
        return self._token.at(load.decode_seqs + 1)
