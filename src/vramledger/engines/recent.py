"""Answers of pure functions about one large value, kept for the next questions.

A grid asks of the same checkpoint thousands of times, and much of a plan depends on a few of the settings alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Recent(Generic[Answer]):
    """The last answers, at most `size` of them.

    The large value is told by its identity: a hash over all of it would cost more than most answers. It is kept with the
    answer, so that its identity cannot become another's. The answer must depend on it and the key alone.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._answers: dict[tuple[int, int, Hashable], tuple[object, object, Answer]] = {}

    def get(self, about: object, key: Hashable, make: Callable[[], Answer], *, also: object = None) -> Answer:
        """The answer for `about` and `key`, made where it is not there; `also` is a second value told by identity."""
        place = (id(about), id(also), key)
        found = self._answers.get(place)
        if found is not None:
            return found[2]
        answer = make()
        if len(self._answers) >= self._size:
            self._answers.clear()
        self._answers[place] = (about, also, answer)
        return answer
