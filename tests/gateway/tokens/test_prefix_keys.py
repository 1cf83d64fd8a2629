"""Identities of blocks: equal exactly where the beginnings are, and nowhere else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.gateway.admitter import Kind, RequestFacts
from vramledger.gateway.tokens.prefix_keys import TURN_BLOCKS, prefix_keys, seed_of

SECRET = b"s" * 32
ids = st.lists(st.integers(0, 3), max_size=40)


def facts(**more: object) -> RequestFacts:
    told = {"number": 1, "kind": Kind.CHAT, "model": "m", "prompt_bytes": 1, **more}
    return RequestFacts(**told)  # type: ignore[arg-type]


@given(first=ids, second=ids, block_size=st.integers(1, 5))
def test_two_prompts_share_the_blocks_of_their_common_beginning(
    first: list[int], second: list[int], block_size: int
) -> None:
    one, other = (prefix_keys(some, block_size, SECRET) for some in (first, second))
    assert len(one) == len(first) // block_size
    same = sum(1 for a, b in zip(one, other, strict=False) if a == b)
    common = next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    assert same == common // block_size
    assert one[:same] == other[:same]
    assert set(one[same:]).isdisjoint(other[same:])


def test_a_long_prompt_is_named_as_its_beginning_is() -> None:
    block_size = 3
    long = [(7 * at) % 151 for at in range(block_size * (2 * TURN_BLOCKS + 5) + 2)]
    keys = prefix_keys(long, block_size, SECRET)
    assert len(keys) == len(set(keys)) == 2 * TURN_BLOCKS + 5
    for blocks in (1, TURN_BLOCKS, TURN_BLOCKS + 1):
        assert prefix_keys(long[: block_size * blocks], block_size, SECRET) == keys[:blocks]
    assert all(0 <= key < 2**63 for key in keys)


def test_whatever_forbids_sharing_is_in_the_seed() -> None:
    seeds = [
        seed_of(SECRET, facts(), {}),
        seed_of(b"t" * 32, facts(), {}),
        seed_of(SECRET, facts(tenant=2), {}),
        seed_of(SECRET, facts(model="adapter"), {}),
        seed_of(SECRET, facts(), {"cache_salt": "x"}),
        seed_of(SECRET, facts(), {"extra_key": "x"}),
        seed_of(SECRET, facts(), {"lora": [{"id": 0, "scale": 1.0}]}),
    ]
    assert len({prefix_keys([1, 2, 3, 4], 2, seed) for seed in seeds}) == len(seeds)
    # What is generated from a prompt, and which request it is, makes no difference.
    assert seed_of(SECRET, facts(number=9, stream=True), {"temperature": 1}) == seeds[0]


def test_what_is_no_token_has_no_identity() -> None:
    assert prefix_keys([1, -2, 3, 4], 2, SECRET) == ()
    long = [1] * (2 * TURN_BLOCKS) + [2, -1]
    assert prefix_keys(long, 2, SECRET) == prefix_keys(long[:-2], 2, SECRET)
    assert prefix_keys([1, 2**40, 3, 4], 2, SECRET) == ()
    assert prefix_keys([1, "2"], 2, SECRET) == ()  # type: ignore[list-item]
