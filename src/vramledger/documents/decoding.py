"""Published documents turned back into values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from vramledger.errors import InputError

_Document = TypeVar("_Document", bound=msgspec.Struct)
_Value = TypeVar("_Value")
_Target = TypeVar("_Target")


def read_document(
    text: bytes,
    kind: type[_Document],
    value_of: Callable[[_Document], _Value],
    *,
    where: str,
    name: str,
    command: str,
) -> _Value:
    """The value that `value_of` makes of a document; `where`, `name` and `command` say in errors which it is and who writes one.

    Raises InputError for what is not JSON, is another document, is of a newer major version or holds figures that cannot be
    (those that `value_of` raises ValueError for).
    """
    try:
        return value_of(msgspec.json.decode(text, type=kind))
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InputError(
            f"{where} is not a {name} of version 1: {problem}; write one with {command}",
            file=where,
            reason=str(problem),
        ) from None


def by_name(value: object, target: type[_Target]) -> _Target:
    """A value as another type with the same field names: a document of what it publishes, and back.

    Raises msgspec.ValidationError where a field's value cannot be of the target's type.
    """
    return msgspec.convert(value, target, from_attributes=True)
