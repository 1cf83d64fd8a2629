"""A trace sent again: at a rate of one's own, on its own times stretched or on drawn ones, as often as a stage is long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count
from random import Random

from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.workload.request import Request

NS_PER_S = 1_000_000_000
MOST_REQUESTS = 500_000
"""Of one stage."""


def replayed(
    requests: Sequence[Request],
    *,
    per_s: float,
    seconds: float,
    is_own_times: bool,
    burstiness: float = 1.0,
    seed: int = 0,
) -> tuple[Request, ...]:
    """The requests that are sent in `seconds` when `per_s` of them that follow no other are sent a second, in order.

    A later turn comes with the conversation that it belongs to, at its nominal distance, and is left out where that is past the end. With
    `is_own_times` the arrivals of as many of the trace's first requests as are wanted are stretched to the stage, bursts and all; else they are drawn: gamma
    gaps of a coefficient of variation `burstiness`. A trace that is shorter than the stage is sent again with other identities, so that nothing of
    its first pass is found in the second.

    Raises InputError where the trace has no times to stretch, and for more than MOST_REQUESTS.
    """
    if not requests:
        raise InputError("the trace holds no request")
    end_ns = round(seconds * NS_PER_S)
    times = _stretched_ns(requests, per_s, seconds) if is_own_times else _drawn_ns(per_s, burstiness, seed)
    renamed = _Renaming(requests)
    sent: list[tuple[int, int | None, Request]] = []
    for again in count():
        place: dict[int, int] = {}
        for number, request in enumerate(requests):
            if request.parent is None:
                parent, at_ns = None, next(times)
                if at_ns >= end_ns:
                    return in_order(sent)
            else:
                parent = place.get(request.parent)
                if parent is None:
                    continue
                at_ns = sent[parent][0] + max(request.arrival_ns - requests[request.parent].arrival_ns, 0)
            if at_ns < end_ns:
                place[number] = len(sent)
                sent.append((at_ns, parent, renamed(request, again)))
            if len(sent) > MOST_REQUESTS:
                raise InputError(
                    f"a stage of {seconds:g} s at {per_s:g} requests a second has more than {MOST_REQUESTS:,} requests"
                )
    raise AssertionError("time ends every stage")


def _stretched_ns(requests: Sequence[Request], per_s: float, seconds: float) -> Iterator[int]:
    """Times of those that follow no other, pass after pass, so that just as many come in the stage as its rate says."""
    starts_ns = [one.arrival_ns for one in requests if one.parent is None]
    span_ns = starts_ns[-1] - starts_ns[0]
    # A pass ends with a gap of the usual length, so that the next does not begin on its last arrival.
    pass_ns = span_ns + span_ns // max(len(starts_ns) - 1, 1)

    def own_ns(place: int) -> int:
        again, number = divmod(place, len(starts_ns))
        return again * pass_ns + starts_ns[number] - starts_ns[0]

    wanted = max(round(per_s * seconds), 1)
    whole_ns = own_ns(wanted)
    if not whole_ns:
        raise InputError(
            f"the first {wanted:,} requests of the trace come at once, so its times cannot be stretched; let arrivals be drawn"
        )
    return (round(own_ns(place) * seconds * NS_PER_S / whole_ns) for place in count())


def _drawn_ns(per_s: float, burstiness: float, seed: int) -> Iterator[int]:
    return accumulate(drawn_gaps_ns(per_s, burstiness, seed))


def drawn_gaps_ns(per_s: float, burstiness: float, seed: int) -> Iterator[int]:
    """Gaps between arrivals: gamma of a mean and a coefficient of variation (1: exponential; 0: all alike)."""
    random, mean_ns = Random(f"gaps {seed}"), NS_PER_S / per_s  # noqa: S311
    shape = 1 / burstiness**2 if burstiness else 0.0
    draw: Callable[[], float] = (
        (lambda: random.gammavariate(shape, mean_ns / shape)) if burstiness else lambda: mean_ns
    )
    while True:
        yield round(draw())


def in_order(sent: Sequence[tuple[int, int | None, Request]]) -> tuple[Request, ...]:
    """Requests of (arrival, place of the parent among them, request), by arrival, parents numbered anew."""
    order = sorted(range(len(sent)), key=lambda place: (sent[place][0], place))
    number = {place: at for at, place in enumerate(order)}
    return tuple(
        replace(
            sent[place][2],
            arrival_ns=sent[place][0],
            parent=None if (parent := sent[place][1]) is None else number[parent],
        )
        for place in order
    )


class _Renaming:
    """Identities and conversations of later passes, different from those of all others."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._next_id = max((max(one.blocks) for one in requests if one.blocks), default=-1) + 1
        self._ids: dict[tuple[int, int], int] = {}
        self._conversations = max((one.conversation or 0 for one in requests), default=0) + 1

    def __call__(self, request: Request, again: int) -> Request:
        if not again:
            return request
        conversation = request.conversation
        return replace(
            request,
            blocks=tuple(self._id(again, block) for block in request.blocks),
            conversation=None if conversation is None else conversation + again * self._conversations,
        )

    def _id(self, again: int, block: int) -> int:
        found = self._ids.get((again, block))
        if found is None:
            found = self._ids[again, block] = self._next_id
            self._next_id += 1
        return found
