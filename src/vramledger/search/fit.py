"""Which plans hold, what they cost, and by how little others miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from vramledger.search.bounds import least_weight_bytes, weights_beyond_bytes
from vramledger.search.cost import Cost, Order, cost_of, front, sort_key
from vramledger.search.evaluation import Status, Subject
from vramledger.search.grid import Grid
from vramledger.search.rows import DEVICES_PER_NODE, Row
from vramledger.search.terms import Question, Unasked

Answers = Callable[[Sequence[int]], Iterable[Row]]
"""The rows of a grid's points by number, in the order given."""

NEAREST_PRUNED = 8
"""How many of those that surely fail by their weights are planned where nothing else tells how plans fail."""


class Limits(Struct, frozen=True, kw_only=True):
    """How many devices a plan may take. A layer is never cut over more than one node."""

    max_devices: int | None = None
    max_nodes: int = 1
    devices_per_node: int = DEVICES_PER_NODE

    @property
    def most_devices(self) -> int:
        """Devices that the nodes have, or that are allowed if those are fewer."""
        there = self.max_nodes * self.devices_per_node
        return there if self.max_devices is None else min(self.max_devices, there)

    def allow(self, question: Question) -> bool:
        return question.tp <= self.devices_per_node and question.devices <= self.most_devices


class Candidate(Struct, frozen=True, kw_only=True):
    """A plan that holds. `is_best` is set where no other is at least as good in everything and better in something."""

    row: Row
    cost: Cost
    is_best: bool = False


class Refusal(Struct, frozen=True, kw_only=True):
    """Plans that no bytes would help, by the reason."""

    reason: str
    count: int


class Fit(Struct, frozen=True, kw_only=True):
    """What holds, best first; what cannot be told; what fails, the most useful near miss first; what was not planned.

    `points` is the size of the grid, `beyond_limits` those with more devices than allowed, `pruned` those whose
    weights alone surely pass the devices' memory.
    """

    order: Order
    holding: tuple[Candidate, ...]
    untold: tuple[Row, ...]
    near: tuple[Row, ...]
    refused: tuple[Refusal, ...]
    points: int
    beyond_limits: int
    pruned: int
    planned: int


def fit(
    grid: Grid,
    subject: Subject,
    answers: Answers,
    *,
    order: Order = Order.DEVICES,
    limits: Limits | None = None,
    prune: bool = True,
) -> Fit:
    """Plan every point within the limits and sort what came out. Without `prune` nothing is left out."""
    limits = limits or Limits()
    wanted: list[int] = []
    dropped: list[tuple[int, int]] = []
    beyond_limits = 0
    least = _Least(subject)
    for number, question in enumerate(grid.questions()):
        if not limits.allow(question):
            beyond_limits += 1
            continue
        beyond = least.beyond_bytes(question) if prune else 0
        if beyond:
            dropped.append((beyond, number))
        else:
            wanted.append(number)
    rows = list(answers(wanted))
    if dropped and not any(row.status is not Status.REFUSED for row in rows):
        nearest = sorted(number for _, number in sorted(dropped)[:NEAREST_PRUNED])
        rows += answers(nearest)
        dropped = dropped[NEAREST_PRUNED:]
    holding = _candidates(rows, order)
    return Fit(
        order=order,
        holding=holding,
        untold=tuple(_by_spending(row for row in rows if row.status is Status.UNTOLD)),
        near=tuple(_near(rows, holding)),
        refused=_refusals(rows),
        points=len(grid),
        beyond_limits=beyond_limits,
        pruned=len(dropped),
        planned=len(rows),
    )


class _Least:
    """The least bytes of the weights, once for each format."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._bytes: dict[tuple[int, str], int] = {}

    def beyond_bytes(self, question: Question) -> int:
        """0 where the engine has flags of its own, which may load the weights in another format."""
        if self._subject.flags.get(question.engine):
            return 0
        key = (question.model, question.weights)
        if key not in self._bytes:
            try:
                self._bytes[key] = least_weight_bytes(self._subject.checkpoint(*key))
            except Unasked:
                self._bytes[key] = 0
        return weights_beyond_bytes(question, self._bytes[key], self._subject.device(question.device))


def _candidates(rows: Iterable[Row], order: Order) -> tuple[Candidate, ...]:
    held = [row for row in rows if row.status is Status.HOLDS]
    costs = [cost_of(row) for row in held]
    best = front(costs)
    found = [
        Candidate(row=row, cost=cost, is_best=number in best)
        for number, (row, cost) in enumerate(zip(held, costs, strict=True))
    ]
    return tuple(sorted(found, key=lambda item: sort_key(item.cost, order)))


def _spending(row: Row) -> tuple[float, int]:
    return (row.price if row.price is not None else float("inf"), row.devices)


def _by_spending(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=_spending)


def _near(rows: Iterable[Row], holding: Sequence[Candidate]) -> Iterator[Row]:
    """First what would be cheaper than everything that holds, and within that what lacks the smallest share of a device."""
    least = min((_spending(item.row) for item in holding), default=None)
    failing = [row for row in rows if row.status is Status.FAILS]
    yield from sorted(
        failing,
        key=lambda row: (
            least is not None and _spending(row) >= least,
            row.shortfall_bytes / (row.device_total_bytes or 1),
            *_spending(row),
        ),
    )


def _refusals(rows: Iterable[Row]) -> tuple[Refusal, ...]:
    counts = Counter(row.reason for row in rows if row.status is Status.REFUSED)
    return tuple(Refusal(reason=reason, count=count) for reason, count in counts.most_common())
