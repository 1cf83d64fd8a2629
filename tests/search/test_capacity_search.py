"""Finding the largest load: on curves whose answer is known, with noise, with dents, and without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.search.capacity.bands import Band, goodput_band
from vramledger.search.capacity.largest import largest_load, largest_loads, search_of


def curve(
    share: Callable[[float], float], seen: list[float], half: float = 0.0
) -> Callable[[Sequence[float]], list[Band]]:
    def evaluate(loads: Sequence[float]) -> list[Band]:
        assert list(loads) == sorted(set(loads))
        assert not set(loads) & set(seen), "a load is run once"
        seen.extend(loads)
        return [Band(low=share(load) - half, expected=share(load), high=share(load) + half) for load in loads]

    return evaluate


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 1000), st.integers(1, 8), st.sampled_from([0.01, 0.02, 0.1]))
def test_a_falling_goodput_is_found_to_the_resolution(edge: float, width: int, resolution: float) -> None:
    search = search_of(aim=0.99, width=width, resolution=resolution)
    found = largest_load(curve(lambda load: 1.0 if load <= edge else 0.5, []), search)
    assert found.load <= edge < (found.beyond or 0.0)
    assert found.beyond is not None
    assert found.beyond / found.load <= 1 + resolution + 1e-9
    assert found.is_monotone


def test_the_band_crosses_on_both_sides() -> None:
    found = largest_load(
        curve(lambda load: 1.5 - load / 10, [], half=0.05), search_of(aim=1.0, resolution=0.01)
    )
    assert found.load == pytest.approx(5.0, rel=0.02)
    assert found.low == pytest.approx(4.5, rel=0.02)
    assert found.high == pytest.approx(5.5, rel=0.02)


def test_a_dent_below_the_edge_is_not_jumped_over() -> None:
    def share(load: float) -> float:
        return 0.5 if 3.0 < load < 3.9 or load > 7.3 else 1.0

    found = largest_load(curve(share, []), search_of(aim=0.99, resolution=0.01))
    assert found.load <= 3.0
    assert not found.is_monotone


def test_no_load_and_every_load() -> None:
    none = largest_load(curve(lambda load: 0.4, []), search_of(aim=0.99))
    assert (none.load, none.low) == (0.0, 0.0)
    assert none.beyond is not None
    every = largest_load(curve(lambda load: 1.0, []), search_of(aim=0.99))
    assert every.beyond is None
    assert every.load >= 2**15


def test_a_band_is_of_blocks_and_repeatable() -> None:
    even = [(9, 10)] * 20
    assert goodput_band(even, confidence=0.95, seed=1) == Band(low=0.9, expected=0.9, high=0.9)
    uneven = [(10, 10)] * 18 + [(0, 10)] * 2
    band = goodput_band(uneven, confidence=0.95, seed=1)
    assert band.low < 0.85 < band.expected == 0.9 < 0.95 < band.high
    assert goodput_band(uneven, confidence=0.95, seed=1) == band
    wider = goodput_band(uneven, confidence=0.99, seed=1)
    assert wider.low <= band.low
    assert wider.high >= band.high


def test_no_miss_in_a_few_requests_is_not_certainty() -> None:
    assert goodput_band([(100, 100)], confidence=0.95, seed=0).low == pytest.approx(0.97, abs=0.001)
    assert goodput_band([(100, 100)] * 100, confidence=0.95, seed=0).low > 0.999


def test_searches_side_by_side_find_what_each_finds_alone() -> None:
    edges = {"a": 3.0, "b": 40.0, "c": 0.2}
    rounds: list[int] = []

    def share(edge: float) -> Callable[[float], float]:
        return lambda load: 1.0 if load <= edge else 0.9

    def together(asked: Mapping[str, list[float]]) -> dict[str, Sequence[Band]]:
        rounds.append(len(asked))
        return {name: curve(share(edges[name]), [])(loads) for name, loads in asked.items()}

    found = largest_loads(together, {name: search_of(aim=0.99) for name in edges})
    alone = {name: largest_load(curve(share(edge), []), search_of(aim=0.99)) for name, edge in edges.items()}
    assert found == alone
    assert rounds[0] == 3
