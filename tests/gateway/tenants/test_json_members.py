"""A member set in a JSON text: the value is what it should be, and what else is said stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.gateway.request_facts import read_body
from vramledger.gateway.tenants.json_members import with_member

NAMES = st.sampled_from(["cache_salt", "model", "messages", 'a"}{,', "cache\\salt", "ü", ""]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
SPACES = st.text(" \t\r\n", max_size=2)


@st.composite
def objects(draw: st.DrawFn) -> str:
    """JSON objects as clients write them: any spacing, escapes or not, names more than once."""
    pairs = draw(st.lists(st.tuples(NAMES, VALUES), max_size=6))
    parts = []
    for name, value in pairs:
        escaped = draw(st.booleans())
        spaces = [draw(SPACES) for _ in range(4)]
        text = json.dumps(name, ensure_ascii=escaped)
        if escaped and name == "cache_salt" and draw(st.booleans()):
            text = '"cache\\u005fsalt"'
        written = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        parts.append(f"{spaces[0]}{text}{spaces[1]}:{spaces[2]}{written}{spaces[3]}")
    return draw(SPACES) + "{" + (",".join(parts) or draw(SPACES)) + "}" + draw(SPACES)


@given(objects(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_only_the_member_changes(text: str, salt: str) -> None:
    body = text.encode()
    asked = read_body(body)
    new = with_member(body, "cache_salt", salt, is_there="cache_salt" in asked, is_empty=not asked)
    assert json.loads(new) == {**json.loads(body), "cache_salt": salt}
    first: dict[str, object] = {}
    for name, value in json.loads(new, object_pairs_hook=list):
        first.setdefault(name, value)
    assert first["cache_salt"] == salt  # for a reader that takes the first of two
    if "cache_salt" not in asked:
        assert new.startswith(body.rstrip()[:-1])


@pytest.mark.parametrize(
    ("body", "new"),
    [
        (b"{}", b'{"cache_salt":"s"}'),
        (b' { } \n', b' { "cache_salt":"s"}'),
        (b'{"n": 1e400, "t": "\xc3\xbc\\u00fc"}\n', b'{"n": 1e400, "t": "\xc3\xbc\\u00fc","cache_salt":"s"}'),
        (b'{"cache_salt": "x"}', b'{"cache_salt":"s"}'),
        (b'{"cache_salt": "x", "a": "}", "cache_salt": {"a": [1, 2]}}', b'{"a":"}","cache_salt":"s"}'),
        (b'{"a": 1e400, "cache_salt": "x", "b": [1,  2.50], "\\u0061": {"a":  1}}', b'{"a":{"a":  1},"b":[1,  2.50],"cache_salt":"s"}'),
        (b'{"a": [{"cache_salt": 1}], "b": "\\"cache_salt\\":"}', b'{"a": [{"cache_salt": 1}], "b": "\\"cache_salt\\":","cache_salt":"s"}'),
    ],
)  # fmt: skip
def test_examples(body: bytes, new: bytes) -> None:
    asked = read_body(body)
    assert with_member(body, "cache_salt", "s", is_there="cache_salt" in asked, is_empty=not asked) == new


def test_a_long_body_is_not_walked_where_nothing_is_replaced() -> None:
    text = json.dumps({"prompt": list(range(100_000))}).encode()
    assert (
        with_member(text, "cache_salt", "s", is_there=False, is_empty=False)
        == text[:-1] + b',"cache_salt":"s"}'
    )
