"""What was admitted, told as stories: progress, prefixes that are shared, requests that are late."""

from __future__ import annotations

from vramledger.admission.books import Books, Pace
from vramledger.admission.candidate import Candidate
from vramledger.admission.need import Need
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout

NEED = Need(PoolLayout(num_blocks=100, groups=(BlockGroup(block_tokens=4),)), step_tokens=20)
PACE = Pace(step_tokens=20, max_running=4)


def candidate(
    identity: int, prompt_tokens: int, output_tokens: int, keys: tuple[int, ...] = (), boundary: int = 0
) -> Candidate:
    return Candidate(
        identity=identity,
        prompt_tokens=prompt_tokens,
        max_output_tokens=output_tokens,
        keys=keys,
        boundary=boundary,
    )


def admit(books: Books, one: Candidate) -> int:
    """Lets it in with its bound, and says how many blocks it is credited with."""
    keys = books.credited_keys(one)
    holding = books.holding(one, one.max_output_tokens, one.prompt_tokens, keys)
    books.admit(one, one.max_output_tokens, one.prompt_tokens, holding)
    return len(keys)


def test_a_request_grows_shows_where_it_is_and_ends() -> None:
    books = Books(NEED, PACE)
    admit(books, candidate(1, 8, 9))
    # 8 tokens now, 8 + 9 - 1 at the end: the last token's KV is never computed.
    assert (books.blocks_now(), books.peak_blocks()) == (2, 4)
    for tokens in range(1, 9):
        books.progress(1, tokens)
        assert books.blocks_now() == -(-(8 + tokens) // 4)
    books.end(1)
    assert (books.blocks_now(), books.peak_blocks(), books.step) == (0, 0, 8)


def test_a_prompt_may_wait_for_those_before_it() -> None:
    # At most 3 others decode, so 17 of a step's 20 tokens are for prompts: 34 of them take 2 steps, 35 take 3.
    assert [PACE.wait_steps(tokens) for tokens in (0, 17, 34, 35)] == [0, 1, 2, 3]
    assert Pace(step_tokens=3, max_running=4).wait_steps(1) is None
    books = Books(NEED, PACE)
    admit(books, candidate(1, 34, 2))
    late = books.holding(candidate(2, 1, 2), 2, 1, ())
    assert (late.growth_end, late.hold_end) == (1, 2 + 3)
    # Once it is known to decode nothing is left to wait for, but for a step in which others are told of first.
    books.progress(1, 1)
    assert books.prefill_tokens == 0
    late = books.holding(candidate(2, 1, 2), 2, 1, ())
    assert late.hold_end - late.growth_end == 1 + 1


def test_a_prefix_is_credited_once_it_is_computed_and_while_somebody_holds_it() -> None:
    books = Books(NEED, PACE)
    assert admit(books, candidate(1, 14, 50, (1, 2, 3))) == 0
    assert admit(books, candidate(2, 14, 5, (1, 2, 9))) == 0
    books.progress(1, 1)
    # Blocks 1 and 2 are held by the first alone, and all three can be shared.
    assert books.credited_keys(candidate(3, 14, 5, (1, 2, 3))) == (1, 2, 3)
    assert books.credited_keys(candidate(3, 14, 5, (1, 2, 9))) == (1, 2)
    # A prompt's last token is always computed, into a block of its own.
    assert books.credited_keys(candidate(3, 12, 5, (1, 2, 3))) == (1, 2)
    # Another boundary shares nothing.
    assert books.credited_keys(candidate(3, 14, 5, (1, 2, 3), boundary=1)) == ()
    # The second computed 1 and 2 besides: which of the two a third would share nobody knows, so it is credited with none.
    books.progress(2, 1)
    assert books.credited_keys(candidate(3, 14, 5, (1, 2, 3))) == ()
    books.end(2)
    assert admit(books, candidate(3, 14, 5, (1, 2, 3))) == 3
    before = books.blocks_now()
    # What both hold stays when the first ends: of its 4 blocks one was its own.
    books.end(1)
    assert books.blocks_now() == before - 1
    books.end(3)
    assert (books.blocks_now(), books.credited_keys(candidate(4, 14, 5, (1, 2, 3)))) == (0, ())


def test_who_should_have_ended_and_has_not_still_holds_its_blocks() -> None:
    books = Books(NEED, PACE)
    admit(books, candidate(1, 8, 4))
    admit(books, candidate(2, 8, 40))
    books.progress(1, 1)
    for tokens in range(1, 30):
        books.progress(2, tokens)
        assert books.blocks_now() >= 2 + -(-(8 + tokens) // 4)
    books.end(1)
    assert books.blocks_now() == -(-37 // 4)


def test_room_comes_when_enough_has_ended() -> None:
    books = Books(NEED, Pace(step_tokens=20, max_running=4))
    admit(books, candidate(1, 16, 3))
    admit(books, candidate(2, 4, 30))
    books.progress(1, 1)
    books.progress(2, 1)
    # 18 + 8 tokens when the first ends, 4 + 29 when the second does, 30 steps from now with one to spare.
    assert books.peak_blocks() == 9
    assert books.steps_until_room(5, 14) is None
    assert books.steps_until_room(6, 14) == 30
    # Where no end is relied on nothing is foretold.
    unsure = Books(NEED, Pace())
    admit(unsure, candidate(1, 16, 3))
    assert unsure.steps_until_room(6, 10) is None
