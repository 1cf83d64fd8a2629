"""Sections of a configuration out of TOML: unknown keys and wrong values are refused by their path. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from vramledger.errors import InputError, shorter

T = TypeVar("T")
MOST_BYTES = 1 << 20
LONGEST_TEXT = 1024


def read_toml(text: bytes, source: str) -> dict[str, Any]:
    """The tables of a file. Raises InputError with the line of what is not TOML."""
    if len(text) > MOST_BYTES:
        raise InputError(f"{source} has more than {MOST_BYTES:,} bytes", source=source)
    try:
        return tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise InputError(f"{source} is not UTF-8 (byte {problem.start:,})", source=source) from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as problem:
        raise InputError(f"{source} is not TOML: {problem}", source=source) from None


def read_struct(kind: type[T], values: Mapping[str, Any], source: str) -> T:
    """The values as a Struct, and those in it as theirs. Raises InputError naming the key by its path."""
    _refuse_unknown(kind, values, source, "")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as problem:
        raise InputError(f"{source}: {_worded(str(problem), kind)}", source=source) from None
    except InputError as problem:
        raise InputError(f"{source}: {problem.message}", source=source) from None
    except RecursionError:
        raise InputError(f"{source} is nested too deep", source=source) from None


def _refuse_unknown(kind: Any, value: Any, source: str, path: str) -> None:
    if isinstance(value, str) and (len(value) > LONGEST_TEXT or "\0" in value):
        what = "holds a NUL" if "\0" in value else f"is longer than {LONGEST_TEXT:,} characters"
        raise InputError(f"{source}: {path.rstrip('.')} {what}", source=source, key=path.rstrip("."))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, Mapping):
        hints = get_type_hints(kind)
        fields = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}
        for name, inner in value.items():
            if name not in fields:
                near = get_close_matches(str(name), list(fields), n=1)
                meant = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(fields))}"
                raise InputError(
                    f"{source}: there is no setting {shorter(path + str(name))}{meant}",
                    source=source,
                    key=path + str(name),
                )
            _refuse_unknown(fields[name], inner, source, f"{path}{name}.")
    elif get_origin(kind) is dict and isinstance(value, Mapping):
        for name, inner in value.items():
            _refuse_unknown(get_args(kind)[1], inner, source, f"{path}{name}.")
    elif get_origin(kind) is tuple and isinstance(value, list):
        for place, inner in enumerate(value):
            _refuse_unknown(get_args(kind)[0], inner, source, f"{path[:-1]}[{place}].")
    else:
        for option in get_args(kind):  # X | None
            if isinstance(option, type) and issubclass(option, msgspec.Struct):
                _refuse_unknown(option, value, source, path)


def _worded(problem: str, kind: Any) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.limits.queued`" with the path first, and with what may be chosen from."""
    said, mark, path = problem.rpartition(" - at `$.")
    if not mark:
        return problem
    path = path.rstrip("`")
    choices = _choices(kind, path) if said.startswith("Invalid enum value") else ()
    known = f"; known are {', '.join(choices)}" if choices else ""
    return f"{path}: {said}{known}"


def _choices(kind: Any, path: str) -> tuple[str, ...]:
    """Values of the enum at a path of sections; none where it leads elsewhere."""
    for name in path.split("."):
        kind = get_type_hints(kind).get(name) if isinstance(kind, type) else None
    for option in (kind, *get_args(kind)):  # X | None
        if isinstance(option, type) and issubclass(option, Enum):
            return tuple(str(one.value) for one in option)
    return ()
