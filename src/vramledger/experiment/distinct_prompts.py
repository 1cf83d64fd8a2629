"""Prompts that share no beginning, so that no prefix is cached unless it is meant to be."""

from __future__ import annotations


class DistinctPrompts:
    """Token ids no two of which begin alike; ids that any vocabulary has where its size is not known."""

    def __init__(self, vocab_size: int | None, seed: int = 0) -> None:
        size = max(2, vocab_size or 1000)
        self._first = min(1000, size // 2)
        self._span = max(size - self._first - 1, 1)
        self._at = seed * 104_729

    def new(self, length: int) -> list[int]:
        """Another one, of so many tokens."""
        self._at += 7919
        return [self._first + (self._at + 31 * place) % self._span for place in range(length)]
