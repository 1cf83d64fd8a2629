"""Keys are random, kept as hashes, and an unknown one costs what a known one costs."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.gateway.tenants.keys import KeyHash, KeyRing, new_key, read_key_hash


class Counting:
    def __init__(self) -> None:
        self.hashed: list[int] = []
        self.compared: list[tuple[int, int]] = []

    def digest(self, key: bytes) -> bytes:
        self.hashed.append(len(key))
        return hashlib.sha256(key).digest()

    def equal(self, one: bytes, other: bytes) -> bool:
        self.compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)


def test_a_key_opens_its_owners_door_and_no_other() -> None:
    (one, one_hash), (two, two_hash), (other, _) = new_key(), new_key(), new_key()
    ring = KeyRing({"a": [one_hash], "b": [two_hash]})
    assert (ring.owner(one.encode()), ring.owner(two.encode())) == ("a", "b")
    assert ring.owner(other.encode()) is None
    assert one not in one_hash.line
    assert read_key_hash(one_hash.line) == one_hash


def test_the_work_is_the_same_for_every_key() -> None:
    key, known = new_key()
    stranger, _ = new_key()
    name = key.split("_")[1]
    counting = Counting()
    ring = KeyRing({"a": [known]}, digest=counting.digest, equal=counting.equal)
    wrong_secret = f"vl_{name}_{stranger.split('_', 2)[2]}"
    for presented in (key, wrong_secret, stranger):
        ring.owner(presented.encode())
    assert counting.hashed == [len(key)] * 3
    assert counting.compared == [(32, 32)] * 3
    for presented in ("", "secret", "vl_", "x" * 60_000):
        assert ring.owner(presented.encode()) is None
    assert len(counting.compared) == 7
    assert max(counting.hashed) == 128  # however long


@given(st.binary(max_size=200))
def test_nothing_but_the_form_is_a_key_whatever_its_hash(presented: bytes) -> None:
    known = KeyHash(id="0" * 12, digest=hashlib.sha256(presented).digest())
    assert KeyRing({"a": [known]}).owner(presented) is None


def test_an_empty_ring_knows_nobody() -> None:
    assert KeyRing({}).owner(new_key()[0].encode()) is None


def test_a_key_in_the_place_of_its_hash_is_not_repeated() -> None:
    key, _ = new_key()
    with pytest.raises(InputError, match="gateway-key") as caught:
        read_key_hash(key)
    assert key not in str(caught.value)


def test_one_key_has_one_owner() -> None:
    _, known = new_key()
    with pytest.raises(InputError, match="'a' and to 'b'"):
        KeyRing({"a": [known], "b": [known]})
