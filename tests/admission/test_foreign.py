"""Blocks that something else holds, told apart from those that were promised and not given out yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.admission.foreign import ForeignBlocks


def test_who_was_just_let_in_hides_nobody_elses_blocks() -> None:
    foreign = ForeignBlocks()
    assert foreign.told(10, 0, 0) == 10
    # One of 4 blocks was let in and holds none yet: 10 held are still somebody else's, and not 6.
    assert foreign.told(10, 4, 4) == 10
    # It was given them.
    assert foreign.told(14, 4, 4) == 10
    assert foreign.told(14, 4, 0) == 10
    # Somebody else gave back 3; with all prompts given out that is seen at once.
    assert foreign.told(11, 4, 0) == 7
    assert foreign.told(4, 4, 0) == 0


def test_who_is_given_its_prompt_is_not_taken_for_somebody_else() -> None:
    foreign = ForeignBlocks()
    assert foreign.told(0, 4, 4) == 0
    assert foreign.told(2, 4, 4) == 0
    assert foreign.told(4, 4, 4) == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_it_lies_between_what_must_be_and_what_may_be(rows: list[tuple[int, int, int]]) -> None:
    foreign = ForeignBlocks()
    for used, sure, unsure in rows:
        known = sure + unsure
        blocks = foreign.told(used, known, unsure)
        assert max(0, used - known) <= blocks <= max(0, used - sure)
