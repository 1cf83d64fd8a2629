"""One member of a JSON object set in its text. Pure.

Parsers that meet a name twice take the last one (Python's json, nlohmann's, msgspec) or the first; so there is one afterwards. The text
is known to be an object: it was parsed before.
"""

from __future__ import annotations

import msgspec

SPACE = b" \t\r\n"
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_member(text: bytes, name: str, value: object, *, is_there: bool, is_empty: bool) -> bytes:
    """The object with `name` as its last member. `is_there`: it has such a member already, which goes; `is_empty`: it has none at all.

    All else stays byte for byte; where a member goes, the others' values do, and of those that were there twice the last ones.
    """
    if is_there:
        members: dict[str, object] = {**_MEMBERS.decode(text)}
        members.pop(name, None)
        members[name] = value
        return msgspec.json.encode(members)
    member = msgspec.json.encode(name) + b":" + msgspec.json.encode(value)
    head = text.rstrip(SPACE)[:-1]
    return b"".join((head, b"" if is_empty else b",", member, b"}"))
