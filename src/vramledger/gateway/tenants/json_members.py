"""One member of a JSON object set in its text, everything else left byte for byte. Pure.

Parsers that meet a name twice take the last one (Python's json, nlohmann's, msgspec) or the first; so there is one afterwards. The text
is known to be an object: it was parsed before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

SPACE = b" \t\r\n"
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\],]', re.DOTALL)


def with_member(text: bytes, name: str, value: object, *, is_there: bool, is_empty: bool) -> bytes:
    """The object with `name` as its last member. `is_there`: it has such a member already, which goes; `is_empty`: it has none at all."""
    if is_there:
        kept = [part for part in members(text) if member_name(part) != name]
        text = b"{" + b",".join(kept) + b"}"
        is_empty = not kept
    member = msgspec.json.encode(name) + b":" + msgspec.json.encode(value)
    head = text.rstrip(SPACE)[:-1]
    return b"".join((head, b"" if is_empty else b",", member, b"}"))


def members(text: bytes) -> Iterator[bytes]:
    """The members of an object as they stand, with the white space about them."""
    depth = start = 0
    is_empty = True
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if depth == 1 and mark not in (b"{", b"}", b"["):
            if mark == b",":
                yield text[start : token.start()]
                start = token.end()
            else:
                is_empty = False
        if mark in (b"{", b"["):
            depth += 1
            if depth == 1:
                start = token.end()
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0 and not is_empty:
                yield text[start : token.start()]


def member_name(member: bytes) -> str:
    """The name with its escapes read."""
    found = _TOKEN.search(member)
    return msgspec.json.decode(found[0], type=str) if found is not None else ""
