"""Values of an observation by what they are."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.ledger import ByteRange
from vramledger.observation import Value


def size_of(values: Mapping[str, Value], name: str) -> ByteRange | None:
    """Bytes of that name, exact where a whole number was printed; None where there are none."""
    value = values.get(name)
    if isinstance(value, ByteRange):
        return value
    whole = whole_of(values, name)
    return None if whole is None else ByteRange.exact(whole)


def whole_of(values: Mapping[str, Value], name: str) -> int | None:
    """A whole number of that name; None where there is none."""
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
