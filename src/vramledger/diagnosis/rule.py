"""A rule as a value: what it needs to know, when it applies, what it says, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from msgspec import Struct

from vramledger.diagnosis.facts import Facts, told
from vramledger.diagnosis.terms import FailureClass, Weight


class Step(IntEnum):
    """The order in which evidence is used."""

    DOMAIN = 1
    PHASE = 2
    ARITHMETIC = 3
    TREND = 4


class Rule(Struct, frozen=True, kw_only=True):
    """`needs` are names of facts without which it cannot speak; `when` is asked only where all of them are known.

    `says` maps classes to weights; a rule that speaks through words only (`by_words`) never makes an answer sure.
    """

    name: str
    step: Step
    needs: tuple[str, ...]
    when: Callable[[Facts], bool]
    says: Mapping[FailureClass, Weight]
    why: str
    by_words: bool = False


class Spoken(Struct, frozen=True, kw_only=True):
    """Rules of one case: those that applied, and those that could not be asked, with the facts they lacked."""

    applied: tuple[Rule, ...]
    unasked: tuple[tuple[Rule, tuple[str, ...]], ...]

    def scores(self) -> dict[FailureClass, int]:
        """The sum of weights by class."""
        sums: dict[FailureClass, int] = {}
        for rule in self.applied:
            for kind, weight in rule.says.items():
                sums[kind] = sums.get(kind, 0) + weight
        return sums


def ask(rules: Iterable[Rule], facts: Facts) -> Spoken:
    """Every rule put to the facts."""
    applied: list[Rule] = []
    unasked: list[tuple[Rule, tuple[str, ...]]] = []
    for rule in rules:
        lacking = tuple(name for name in rule.needs if not told(facts, name))
        if lacking:
            unasked.append((rule, lacking))
        elif rule.when(facts):
            applied.append(rule)
    return Spoken(applied=tuple(applied), unasked=tuple(unasked))
