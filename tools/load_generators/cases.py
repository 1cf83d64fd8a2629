"""What every load generator is asked to do."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

import msgspec
from tools.load_generators.server import Script


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`per_s` conversations a second of `turns` turns each (1: single requests) for `seconds`, the turns `pause_ms` apart. A `fixed` case is a
    schedule in a file that all keep, where they can; else each draws its own arrivals. The generator is held still for `stopped_s` in the middle."""

    name: str
    per_s: float
    seconds: float
    arrivals: Literal["poisson", "gamma"] = "poisson"
    shape: float = 1.0
    is_fixed: bool = False
    turns: int = 1
    pause_ms: int = 500
    prompt_tokens: int = 200
    output_tokens: int = 40
    stopped_s: float = 0.0
    script: Script = Script()


def gaps_s(case: Case) -> Iterator[float]:
    """Seconds from an arrival to the next, until the case is over."""
    random, at_s = Random(1), 0.0
    while True:
        gap_s = random.gammavariate(case.shape, 1 / (case.shape * case.per_s))
        at_s += gap_s
        if at_s >= case.seconds:
            return
        yield gap_s


def cases(rates: tuple[float, ...]) -> list[Case]:
    """All of them; an answer of the first kind takes 4.1 s, so that 125 a second are 512 streams."""
    slow = Script(first_ms=200, gap_ms=100, events=40)
    quick = Script(first_ms=100, gap_ms=20, events=20)
    return [
        *(Case(name=f"streams at {rate:g}/s", per_s=rate, seconds=15, is_fixed=True, script=slow) for rate in rates),
        Case(name="held still", per_s=50, seconds=14, stopped_s=2.0, output_tokens=20, script=quick),
        Case(name="poisson", per_s=50, seconds=20, output_tokens=20, script=quick),
        Case(name="gamma", per_s=50, seconds=20, arrivals="gamma", shape=0.25, output_tokens=20, script=quick),
        Case(name="refused", per_s=20, seconds=8, output_tokens=20, script=Script(first_ms=100, gap_ms=20, events=20, refuse_every=5)),
        Case(name="turns", per_s=5, seconds=8, turns=3, is_fixed=True, output_tokens=20, script=quick),
    ]  # fmt: skip
