"""The largest load that meets an aim: bracket, then cut the bracket in parallel, on the same random numbers at every load.

Goodput need not fall evenly with load. A load counts as met only if every load tried below it is met too, loads well below the
answer are tried before it stands, and the answer comes with the resolution it was found to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from msgspec import Struct

from vramledger.search.capacity.bands import Band

Evaluate = Callable[[Sequence[float]], Sequence[Band]]
Asking = Generator[list[float], Sequence[Band], None]
Search = Generator[list[float], Sequence[Band], "Found"]
"""Asks for loads, is sent their bands, and returns what it found."""
MOST_TIMES = 2.0**16
"""How far from where it starts a search goes up unless it is told; down it goes by the square root of that."""
CHECKED = (0.5, 0.7, 0.85, 0.95)


class Found(Struct, frozen=True, kw_only=True):
    """The largest load met, where the band's ends cross, and the nearest load tried that is not met.

    `load` is 0 where no load is met, and `beyond` None where every load tried is. `low` is the largest load whose
    whole band meets the aim, `high` the smallest that no part of the band meets (as far as loads were tried).
    """

    load: float
    low: float
    high: float
    beyond: float | None
    tried: tuple[tuple[float, Band], ...]
    is_monotone: bool


class _Tried:
    """Loads tried so far and how each came out."""

    def __init__(self, most: float) -> None:
        self.most = most
        self.bands: dict[float, Band] = {}

    def ask(self, loads: Sequence[float]) -> Asking:
        new = sorted({load for load in loads if load not in self.bands})
        if new:
            bands = yield new
            self.bands.update(zip(new, bands, strict=True))

    def edge(self, met: Callable[[Band], bool]) -> tuple[float, float | None]:
        """The largest load up to which every load tried is met, and the one after it."""
        last = 0.0
        for load in sorted(self.bands):
            if not met(self.bands[load]):
                return last, load
            last = load
        return last, None


def largest_load(evaluate: Evaluate, search: Search) -> Found:
    """What a search finds, its loads evaluated as it asks for them."""
    return largest_loads(lambda asked: {"": evaluate(asked[""])}, {"": search})[""]


def largest_loads(
    evaluate: Callable[[Mapping[str, list[float]]], Mapping[str, Sequence[Band]]],
    searches: Mapping[str, Search],
) -> dict[str, Found]:
    """What several searches find, side by side: the loads that all of them ask for next are evaluated together."""
    found: dict[str, Found] = {}
    asked = {name: next(search) for name, search in searches.items()}
    while asked:
        bands = evaluate(asked)
        going: dict[str, list[float]] = {}
        for name in asked:
            try:
                going[name] = searches[name].send(bands[name])
            except StopIteration as end:
                found[name] = end.value
        asked = going
    return found


def search_of(
    *,
    aim: float,
    start: float = 1.0,
    resolution: float = 0.02,
    width: int = 2,
    step: float = 2.0,
    with_bands: bool = True,
    most: float | None = None,
) -> Search:
    """A search for the largest load whose goodput is at least `aim`, to within `resolution` of it.

    It asks for up to `width` loads at a time (to check the answer for a few more), in rising order. `step` is the factor between loads of
    the bracket; without `with_bands` the crossings of the band are those of the points that were tried anyway. No load above `most` is
    tried.
    """

    def expected(band: Band) -> bool:
        return band.expected >= aim

    tried = _Tried(start * MOST_TIMES if most is None else most)
    yield from tried.ask([start])
    yield from _bracket(tried, expected, step, start)
    yield from _refine(tried, expected, resolution, width)
    load, beyond = tried.edge(expected)
    for _ in range(4):
        if not load:
            break
        yield from tried.ask([load * share for share in CHECKED])
        again = tried.edge(expected)
        if again == (load, beyond):
            break
        yield from _refine(tried, expected, resolution, width)
        load, beyond = tried.edge(expected)
    if with_bands and load:
        for met in (lambda band: band.low >= aim, lambda band: band.high >= aim):
            yield from _bracket(tried, met, 1 + 4 * resolution, load, rounds=6)
            yield from _refine(tried, met, resolution, width)
        load, beyond = tried.edge(expected)
    low, _ = tried.edge(lambda band: band.low >= aim)
    _, over = tried.edge(lambda band: band.high >= aim)
    points = tuple(sorted(tried.bands.items()))
    shares = [band.expected for _, band in points]
    return Found(
        load=load,
        low=min(low, load),
        high=max(load, over if over is not None else points[-1][0]),
        beyond=beyond,
        tried=points,
        is_monotone=not any(
            share < aim <= later for place, share in enumerate(shares) for later in shares[place:]
        ),
    )


def _bracket(
    tried: _Tried, met: Callable[[Band], bool], step: float, start: float, rounds: int = 40
) -> Asking:
    """Go up until a load is not met, or down until one is."""
    for _ in range(rounds):
        last, beyond = tried.edge(met)
        if beyond is None and last < tried.most:
            yield from tried.ask([min(last * step, tried.most)])
        elif last == 0.0 and beyond is not None and beyond > start / MOST_TIMES**0.5:
            yield from tried.ask([beyond / step])
        else:
            return
        step = min(step * step, 2.0) if step < 2 else step


def _refine(tried: _Tried, met: Callable[[Band], bool], resolution: float, width: int) -> Asking:
    """Cut the bracket into `width` + 1 parts, even in their ratio, until it is narrow enough."""
    for _ in range(60):
        last, beyond = tried.edge(met)
        if last == 0.0 or beyond is None or beyond / last <= 1 + resolution:
            return
        ratio = (beyond / last) ** (1 / (width + 1))
        yield from tried.ask([last * ratio**place for place in range(1, width + 1)])
