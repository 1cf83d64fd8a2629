"""How often the intervals of an experiment hold the truth, where the truth is known.

    python -m tools.interval_coverage [--runs 200] [--only slopes|knees]

Slopes: straight lines in noise that remembers (AR(1), to a random walk), by `slope_of` and by least squares. Knees: the ladder of an experiment
up the queue of one server with fixed (M/D/1) and with exponential (M/M/1) times, whose knee is found by long simulation of stages as long as
those of the ladder; by `crossing_of` and by drawing blocks of neighbours anew from each stage (Kuensch, 1989). "above" is how often
the whole interval lies above the knee, which claims more than holds. Tables are Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from math import ceil, inf, sqrt
from random import Random
from statistics import NormalDist, fmean

from msgspec import Struct

from vramledger.experiment.goodput import Tried, crossed, crossing_of, falling, joined, tried
from vramledger.experiment.ladder import Ladder
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import LoadFigures, Stage
from vramledger.experiment.slope import binned, slope_of

CONFIDENCE = 0.95
SERVICE_S = 0.1
DRAWS = 400
PLAN = ExperimentPlan(goodput=0.95)
FORGETS = (0.0, 0.9, 0.97, 0.99, 0.995, 1.0)


class Queue(Struct, frozen=True, kw_only=True):
    """A queue, how long its stages are, and within how long a request must be begun."""

    name: str
    is_exponential: bool
    stage_s: float
    aim_s: float


QUEUES = tuple(
    Queue(name=name, is_exponential=name == "M/M/1", stage_s=stage_s, aim_s=aim_s)
    for name in ("M/D/1", "M/M/1")
    for stage_s, aim_s in ((20.0, 0.5), (60.0, 0.5), (300.0, 0.5), (60.0, 2.0))
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", choices=["slopes", "knees"])
    asked = parser.parse_args()
    if asked.only != "knees":
        slopes(asked.runs)
    if asked.only != "slopes":
        knees(asked.runs)
    return 0


def slopes(runs: int) -> None:
    """1,800 readings a second apart, as in half an hour."""
    print(
        "| neighbours' correlation | forgets in | by slow cosines | by least squares | width, to least squares' |"
    )
    print("| ---: | ---: | ---: | ---: | ---: |")
    times = [float(at) for at in range(1800)]
    for memory in FORGETS:
        random = Random(1)
        held = plain_held = 0
        widths: list[float] = []
        for _ in range(runs):
            noise = wandering(random, len(times), memory)
            found = slope_of(*binned(times, noise), CONFIDENCE)
            assert found is not None
            slope, half = least_squares(times, noise)
            held += found.low <= 0.0 <= found.high
            plain_held += abs(slope) <= half
            widths.append((found.high - found.low) / (2 * half))
        forgets = "at once" if not memory else "never" if memory == 1 else f"{1 / (1 - memory):.0f} s"
        print(
            f"| {memory} | {forgets} | {held / runs:.1%} | {plain_held / runs:.1%} | {sorted(widths)[runs // 2]:.1f} |",
            flush=True,
        )


def wandering(random: Random, count: int, memory: float) -> list[float]:
    value = 0.0 if memory == 1 else random.gauss(0, 1) / sqrt(1 - memory * memory)
    found = []
    for _ in range(count):
        found.append(value)
        value = memory * value + random.gauss(0, 1)
    return found


def least_squares(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The slope, and half its interval as if no reading knew of its neighbours."""
    middle, level = fmean(times), fmean(values)
    along = sum((time - middle) ** 2 for time in times)
    slope = sum((time - middle) * (value - level) for time, value in zip(times, values, strict=True)) / along
    rest = sum(
        (value - level - slope * (time - middle)) ** 2 for time, value in zip(times, values, strict=True)
    )
    return slope, NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * sqrt(rest / (len(times) - 2) / along)


def knees(runs: int) -> None:
    print(
        "| queue | stage | aim | knee | point, to the knee | held | above | low end, to the knee | blocks: held | above |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for queue in QUEUES:
        knee = knee_of(queue)
        random = Random(4)
        points: list[float] = []
        lows: list[float] = []
        ours, blocks = [0, 0], [0, 0]
        for run in range(runs):
            waits = climbed(queue, random)
            found = crossing_of(
                joined([stage_tried(queue, per_s, waited) for per_s, waited in waits]),
                aim=PLAN.goodput,
                confidence=CONFIDENCE,
                seed=run,
                draws=DRAWS,
            )
            points.append((found.per_s or 0.0) / knee)
            lows.append(found.low_per_s / knee)
            for count, (low, high) in (
                (ours, (found.low_per_s, found.high_per_s)),
                (blocks, by_blocks(queue, waits, random)),
            ):
                count[0] += low <= knee and (high is None or knee <= high)
                count[1] += low > knee
        middle = runs // 2
        print(
            f"| {queue.name} | {queue.stage_s:.0f} s | {queue.aim_s} s | {knee:.2f}/s | {sorted(points)[middle]:.2f} "
            f"| {ours[0] / runs:.1%} | {ours[1] / runs:.1%} | {sorted(lows)[middle]:.2f} "
            f"| {blocks[0] / runs:.1%} | {blocks[1] / runs:.1%} |",
            flush=True,
        )


def waited_s(queue: Queue, random: Random, per_s: float) -> list[float]:
    """The wait of each request of one stage that begins with an empty queue."""
    at_s = free_s = 0.0
    found = []
    for _ in range(max(int(per_s * queue.stage_s), PLAN.stage_requests)):
        at_s += random.expovariate(per_s)
        begins_s = max(at_s, free_s)
        free_s = begins_s + (random.expovariate(1 / SERVICE_S) if queue.is_exponential else SERVICE_S)
        found.append(begins_s - at_s)
    return found


def knee_of(queue: Queue) -> float:
    """Where goodput of very many such stages crosses the aim."""
    random = Random(9)
    low, high = 1.0, 12.0
    while high / low > 1.003:
        per_s = sqrt(low * high)
        requests = max(int(per_s * queue.stage_s), PLAN.stage_requests)
        stages = max(300_000 // requests, 50)
        share = fmean(
            fmean(wait <= queue.aim_s for wait in waited_s(queue, random, per_s)) for _ in range(stages)
        )
        low, high = (per_s, high) if share >= PLAN.goodput else (low, per_s)
    return sqrt(low * high)


def climbed(queue: Queue, random: Random) -> list[tuple[float, list[float]]]:
    ladder = Ladder(PLAN, random.uniform(1.0, 1.5))
    stages: list[Stage] = []
    waits = []
    while (per_s := ladder.next(stages)) is not None:
        waited = waited_s(queue, random, per_s)
        good = sum(wait <= queue.aim_s for wait in waited)
        waits.append((per_s, waited))
        stages.append(
            Stage(
                step=Step.SHORT,
                name=f"{per_s}",
                kind=Kind.SHORT,
                per_s=per_s,
                seconds=queue.stage_s,
                seed=0,
                began_s=0.0,
                ended_s=0.0,
                records="",
                measured=LoadFigures(offered=len(waited), good=good),
            )
        )
    return waits


def stage_tried(queue: Queue, per_s: float, waited: Sequence[float]) -> Tried:
    return tried(per_s, [wait <= queue.aim_s for wait in waited], waited)


def by_blocks(
    queue: Queue, waits: Sequence[tuple[float, list[float]]], random: Random
) -> tuple[float, float | None]:
    """The interval of the crossing by overlapping blocks as long as the square root of a stage, drawn anew."""
    ordered = sorted(waits)
    loads = [per_s for per_s, _ in ordered]
    sizes = [len(waited) for _, waited in ordered]
    draws: list[Callable[[], float]] = [block_draw(queue, waited, random) for _, waited in ordered]
    drawn = []
    for _ in range(DRAWS):
        found = crossed(loads, falling([draw() for draw in draws], sizes), PLAN.goodput)
        drawn.append(inf if found is None else found)
    drawn.sort()
    tail = int((1 - CONFIDENCE) / 2 * DRAWS)
    high = drawn[DRAWS - 1 - tail]
    return min(drawn[tail], loads[-1]), None if high == inf else high


def block_draw(queue: Queue, waited: Sequence[float], random: Random) -> Callable[[], float]:
    goods = [wait <= queue.aim_s for wait in waited]
    length = ceil(sqrt(len(goods)))
    round_goods = [*goods, *goods[:length]]
    means = [sum(round_goods[place : place + length]) / length for place in range(len(goods))]
    return lambda: fmean(random.choices(means, k=ceil(len(goods) / length)))


if __name__ == "__main__":
    raise SystemExit(main())
