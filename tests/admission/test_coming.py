"""What a request shares with prompts on their way."""

from __future__ import annotations

from vramledger.admission.candidate import Candidate
from vramledger.admission.coming import Coming


def candidate(identity: int, *keys: int, boundary: int = 0) -> Candidate:
    return Candidate(identity=identity, prompt_tokens=100, max_output_tokens=1, keys=keys, boundary=boundary)


def test_a_turn_shares_what_the_turn_before_it_has_while_that_is_on_its_way() -> None:
    coming = Coming()
    coming.add(candidate(1, 10, 11, 12))
    coming.add(candidate(2, 10, 11, 90, 91))
    assert coming.shared_blocks(candidate(3, 10, 11, 12, 13)) == 3
    assert coming.shared_blocks(candidate(3, 10, 11, 90, 92)) == 3
    assert coming.shared_blocks(candidate(3, 10)) == 1
    assert coming.shared_blocks(candidate(3, 20, 11)) == 0
    assert coming.shared_blocks(candidate(3)) == 0
    coming.remove(1)
    coming.remove(1)
    assert coming.shared_blocks(candidate(3, 10, 11, 12, 13)) == 2
    coming.remove(2)
    assert (len(coming), coming.shared_blocks(candidate(3, 10))) == (0, 0)


def test_nobody_shares_with_itself_or_over_a_boundary() -> None:
    coming = Coming()
    coming.add(candidate(1, 10, 11))
    assert coming.shared_blocks(candidate(1, 10, 11)) == 0
    assert coming.shared_blocks(candidate(2, 10, 11, boundary=1)) == 0
