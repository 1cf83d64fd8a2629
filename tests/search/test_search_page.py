"""The page about searches says what the code does."""

from __future__ import annotations

from tools.search_page import PAGE, page


def test_the_page_is_that_of_the_present_engines_and_columns() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tools.search_page`"
