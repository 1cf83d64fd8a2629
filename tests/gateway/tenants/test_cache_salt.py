"""The salt that keeps tenants apart: one a tenant and secret, a client's own folded in, and only where the engine reads it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.gateway.admitter import Kind
from vramledger.gateway.tenants.cache_salt import BadSalt, salting_for, tenants_salt, together

SECRET = b"k" * 32
NAMES = st.text("ab:0\x011", min_size=1, max_size=4)


@given(NAMES, st.none() | NAMES, NAMES, st.none() | NAMES)
def test_two_tenants_or_two_salts_never_meet(
    one: str, ones: str | None, other: str, others: str | None
) -> None:
    same = (one, ones) == (other, others)
    assert (tenants_salt(SECRET, one, ones) == tenants_salt(SECRET, other, others)) is same


def test_a_salt_is_what_vllm_takes_and_depends_on_the_secret() -> None:
    salt = tenants_salt(SECRET, "a", None)
    assert isinstance(salt, str)
    assert re.fullmatch("[0-9a-f]{64}", salt)  # at most 128, no "@", "/" or backslash
    assert salt == tenants_salt(SECRET, "a", "")
    assert salt != tenants_salt(b"another", "a", None)


def test_a_batch_of_salts_stays_a_batch() -> None:
    assert tenants_salt(SECRET, "a", ["x", None]) == [
        tenants_salt(SECRET, "a", "x"),
        tenants_salt(SECRET, "a", None),
    ]
    for bad in (1, {"a": 1}, [["x"]], True):
        with pytest.raises(BadSalt):
            tenants_salt(SECRET, "a", bad)


@pytest.mark.parametrize(
    ("engine", "version", "members"),
    [
        ("vllm", "0.8.5", set()),
        ("vllm", "0.9.2", {Kind.CHAT}),
        ("vllm", "0.11.0", {Kind.CHAT, Kind.COMPLETION, Kind.RESPONSE}),
        ("vllm", "0.33.0+cpu", set(Kind)),
        ("vllm", None, set(Kind)),  # older ones leave aside what they do not know
        ("sglang", "0.5.23", {Kind.CHAT, Kind.COMPLETION, Kind.RESPONSE}),
        ("tensorrt-llm", "1.0.0", set()),
        ("tensorrt-llm", None, set()),  # older ones refuse what they do not know
        ("tensorrt-llm", "1.2.0rc3", {Kind.CHAT}),
        ("llamacpp", "b9999", set()),
        (None, None, set()),
    ],
)
def test_where_an_engine_reads_it(engine: str | None, version: str | None, members: set[Kind]) -> None:
    salting = salting_for(engine, version)
    assert set(salting.members) == members
    assert salting.note
    if not members:
        assert "share" in salting.note or "find each other" in salting.note


def test_several_engines_are_salted_where_all_of_them_read_the_same_member() -> None:
    new, old, other = salting_for("vllm", "0.33.0"), salting_for("vllm", "0.9.1"), salting_for("sglang", None)
    assert together([new, old]).members == {Kind.CHAT: "cache_salt"}
    assert together([new, other]).members == {}
    assert together([]).members == {}
