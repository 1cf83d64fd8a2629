"""The README in Korean says what the English one says, and what keeps two pages from being equal is told."""

from __future__ import annotations

import pytest

from tools import translation

ENGLISH = translation.ENGLISH.read_text(encoding="utf-8")
KOREAN = translation.KOREAN.read_text(encoding="utf-8")


def test_the_korean_readme_says_what_the_english_one_says() -> None:
    assert list(translation.problems(ENGLISH, KOREAN)) == [], "python -m tools.translation"


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("Four users with long documents", "Five users with long documents", "another text than"),
        ("## Questions\n", "### Questions\n", "the headings are"),
        ("make demo     #", "make demo2    #", "other blocks of code"),
        ("(docs/how-to/which-card.md)", "(docs/how-to/which-cards.md)", "of the links it lacks"),
        ("GiB is 2^30 bytes", "GiB is 2^31 bytes", "of the numbers it lacks"),
        ("`custom:79.19GiB`", "`custom:80GiB`", "of the spans it lacks"),
        ("| vllm | weights GiB | 64 |", "| vllm | weights GiB | 65 |", "of the numbers it lacks"),
        ("| assumed | a default nobody checked; listed under the verdict |\n", "", "tables of another shape"),
        ("(#install)", "(#what-is-covered)", "of the links it lacks"),
    ],
)
def test_a_change_of_the_english_page_is_told_until_the_korean_has_it(
    was: str, becomes: str, said: str
) -> None:
    assert ENGLISH.count(was) == 1
    found = list(translation.problems(ENGLISH.replace(was, becomes), KOREAN))
    assert any(said in problem for problem in found), found


def test_a_new_line_break_is_no_change() -> None:
    wrapped = ENGLISH.replace("It knows\nvLLM, SGLang", "It knows vLLM,\nSGLang")
    assert wrapped != ENGLISH
    assert list(translation.problems(wrapped, KOREAN)) == []


def test_looking_at_a_section_accepts_it_once() -> None:
    changed = ENGLISH.replace("Four users", "Some users")
    accepted = translation.looked_at(changed, KOREAN)
    assert list(translation.problems(changed, accepted)) == []
    assert translation.looked_at(changed, accepted) == accepted
    assert list(translation.problems(ENGLISH, accepted)) != []
