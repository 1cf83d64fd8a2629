"""The benchmark page has the figures of the run that is kept with it, and those that take seconds can be measured again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from msgspec import convert
from tools.benchmark_page import FIGURES, PAGE, Figure, Figures, _commands, _plans, page


@pytest.fixture(scope="module")
def kept() -> Figures:
    return convert(json.loads(FIGURES.read_text(encoding="utf-8")), Figures)


def test_the_page_is_made_of_the_figures_that_are_kept(kept: Figures) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(kept), "run `python -m tools.benchmark_page --figures`"


@pytest.mark.parametrize("again", [_commands(1.0, 0), _plans(1.0, 1)], ids=["commands", "plans"])
def test_what_the_page_tells_can_be_measured_again(kept: Figures, again: Iterator[Figure]) -> None:
    found = list(again)
    assert all(figure.value > 0 for figure in found)
    group = {figure.group for figure in found}
    told = [(figure.what, figure.unit) for figure in kept.figures if figure.group in group]
    assert [(figure.what, figure.unit) for figure in found] == told
