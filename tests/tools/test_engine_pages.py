"""The engine pages say what the rules count, what of a log is read, and up to which release."""

from __future__ import annotations

import pytest

from tools import engine_pages
from vramledger.engines import engine_names, find_log
from vramledger.planning import plan


@pytest.mark.parametrize("engine", engine_pages.CASES)
def test_the_tables_of_an_engine_are_those_of_its_rules(engine: str) -> None:
    text = engine_pages.page_of(engine).read_text(encoding="utf-8")
    assert engine_pages.filled(engine, text) == text, "run `make docs`"


def test_every_engine_has_a_page_that_names_its_newest_release() -> None:
    assert set(engine_pages.CASES) == set(engine_names())
    for engine in engine_names():
        newest = plan("builtin:Llama-3.2-1B-Instruct", "L40S", engine=engine).inputs.engine_version
        text = engine_pages.page_of(engine).read_text(encoding="utf-8")
        rules = text.partition("\n## ")[0]
        assert newest.removesuffix(".0") in rules, f"{engine}: the rules know {newest}"


@pytest.mark.parametrize("engine", engine_pages.CASES)
def test_every_entry_of_a_plan_and_every_wording_is_in_the_tables(engine: str) -> None:
    text = engine_pages.page_of(engine).read_text(encoding="utf-8")
    made = plan("builtin:Llama-3.1-8B-Instruct", "H100-80GB", engine=engine)
    names = [entry.name for rank in made.ranks for entry in rank.entries] + [
        entry.name for entry in made.host
    ]
    assert [name for name in names if name not in text] == []
    log = find_log(engine)
    sources = {pattern.source.partition(",")[0] for pattern in log.PATTERNS} if log else set()
    assert [source for source in sources if source.replace("*", "\\*") not in text] == []


def test_a_table_that_nothing_makes_is_refused() -> None:
    with pytest.raises(SystemExit, match="'guesses'"):
        engine_pages.filled("vllm", "<!-- facts: guesses -->\n<!-- facts: end -->")
