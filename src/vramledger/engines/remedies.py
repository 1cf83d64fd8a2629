"""Remedies of a plan that does not hold: each is planned before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.errors import VramledgerError

Flags = TypeVar("Flags")


def planned(
    plan_under: Callable[[Flags, int], Plan],
    changes: Callable[[Plan, Flags, int], Iterable[Iterable[tuple[str, Flags, int]]]],
    flags: Flags,
    concurrency: int,
    *,
    remedies: bool,
) -> Plan:
    """The plan under `flags`; one that does not surely hold names changes under which it does, where they are asked for.

    `changes` gives single changes of an answer by kind, the least intrusive of each first.
    """
    answer = plan_under(flags, concurrency)
    if answer.verdict.holds or not remedies:
        return answer
    return with_remedies(answer, changes(answer, flags, concurrency), plan_under)


def with_remedies(
    answer: Plan,
    kinds: Iterable[Iterable[tuple[str, Flags, int]]],
    plan_under: Callable[[Flags, int], Plan],
) -> Plan:
    """`answer` with the first change of each kind under which it holds.

    A change is its text, the flags and the number of requests it stands for; one that cannot be planned does not hold.
    """

    def holds(flags: Flags, requests: int) -> bool:
        try:
            return bool(plan_under(flags, requests).verdict.holds)
        except VramledgerError:
            return False

    found = [
        next((text for text, flags, requests in candidates if holds(flags, requests)), None)
        for candidates in kinds
    ]
    remedies = tuple(text for text in found if text is not None)
    return replace(answer, verdict=replace(answer.verdict, remedies=remedies))
