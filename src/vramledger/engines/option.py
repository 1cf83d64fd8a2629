"""An engine's flags as data: how each is spelled, and how what a person writes becomes its value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from vramledger.errors import FlagError

AUTO = -1
_LONGEST_VALUE = 10_000


class OptionKind(StrEnum):
    """What the value is. A switch also has a `--no-` form."""

    COUNT = "count"  # whole number, or one with a unit: 25.6k is 25600, 16K is 16384
    COUNT_OR_AUTO = "count or auto"
    SIGNED = "whole number"
    NUMBER = "number"
    TEXT = "text"
    SWITCH = "switch"
    COUNTS = "whole numbers, comma between"
    JSON = "JSON"
    TEXTS = "names; may be given more than once"


class Option(Struct, frozen=True, kw_only=True):
    """One flag. `name` is Python's spelling of the engine's own name, `aliases` are other command line forms."""

    name: str
    kind: OptionKind
    group: str
    help: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return spelled(self.name)


def option(
    name: str, kind: OptionKind, group: str, text: str, *aliases: str, choices: tuple[str, ...] = ()
) -> Option:
    """A line of an engine's table of flags."""
    return Option(name=name, kind=kind, group=group, help=text, aliases=aliases, choices=choices)


def spelled(name: str) -> str:
    """ "max_num_seqs" as the command line has it."""
    return f"--{name.replace('_', '-')}"


def read_value(option: Option, value: object) -> object:
    """A value given as text or as the Python value it stands for, checked.

    Raises FlagError naming the flag, the value and what is expected.
    """
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        raise FlagError(f"{option.flag}: a value of {len(value)} characters is too long", flag=option.name)
    match option.kind:
        case OptionKind.COUNT | OptionKind.COUNT_OR_AUTO | OptionKind.SIGNED:
            return _count(option, value)
        case OptionKind.NUMBER:
            return _number(option, value)
        case OptionKind.SWITCH:
            return _switch(option, value)
        case OptionKind.COUNTS:
            return _counts(option, value)
        case OptionKind.JSON:
            return _json_object(option, value)
        case OptionKind.TEXT:
            return _text(option, value)
        case OptionKind.TEXTS:
            return _texts(option, value)


def closest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Known names that `name` may have meant, nearest first."""
    from difflib import get_close_matches

    return tuple(get_close_matches(plain_name(name).lower(), list(known), n=3, cutoff=0.6))


def plain_name(text: str) -> str:
    """ "--max-num-seqs" as Python spells it."""
    return text.strip().lstrip("-").replace("-", "_")


def known_names(options: Iterable[Option]) -> dict[str, Option]:
    """Options by their names and by those of their aliases, all as Python spells them."""
    table = tuple(options)
    found = {plain_name(alias): option for option in table for alias in option.aliases}
    return found | {option.name: option for option in table}


def unknown_flag(name: str, known: Iterable[str], engine: str) -> FlagError:
    """The refusal of a flag that `engine` does not have here."""
    near = closest(name, known)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return FlagError(f"{engine} has no flag {name!r} here{hint}", flag=name, closest=near)


# The units of vLLM's own command line (engine/arg_utils.py, human_readable_int): lower case is decimal and may
# follow a fraction, upper case is binary and may not.
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_count(text: str) -> int:
    """ "32768", "32k" (32000), "32K" (32768), "25.6k", "8G". Raises ValueError for anything else."""
    match = re.fullmatch(r"\s*(-?[0-9]{1,4000})(\.[0-9]{1,9})?([kmgtKMGT]?)\s*", text)
    if match is None:
        raise ValueError("is not a whole number such as 32768, 32k (32000) or 32K (32768)")
    whole: str = match.group(1)
    fraction: str | None = match.group(2)
    unit: str = match.group(3)
    if unit in _DECIMAL:
        digits = (fraction or ".0")[1:]
        part: int = int(digits) * _DECIMAL[unit] // 10 ** len(digits)
        size = abs(int(whole)) * _DECIMAL[unit] + part
        return -size if whole.startswith("-") else size
    if fraction:
        raise ValueError("is not whole; only the decimal units k, m, g and t may follow a fraction")
    return int(whole) * _BINARY.get(unit, 1)


def _count(option: Option, value: object) -> int:
    if option.kind is OptionKind.COUNT_OR_AUTO and isinstance(value, str) and value.strip().lower() == "auto":
        return AUTO
    if isinstance(value, str):
        try:
            value = parse_count(value)
        except ValueError as problem:
            raise bad_value(option, value, str(problem)) from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_value(option, value, "is not a whole number")
    if abs(value) > 2**62:
        raise bad_value(option, value, f"is out of range, at most {2**62}")
    return value


def _number(option: Option, value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise bad_value(option, value, "is not a number") from None
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise bad_value(option, value, "is not a number")
    try:
        return float(value)
    except OverflowError:
        raise bad_value(option, value, "is out of range") from None


def _switch(option: Option, value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    found = known.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise bad_value(option, value, "is neither true nor false")
    return found


def _text(option: Option, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise bad_value(option, value, "is not a name")
    text = value.strip()
    if option.choices and text not in option.choices:
        raise bad_value(option, value, f"is not one of {', '.join(option.choices)}")
    return text


def _texts(option: Option, value: object) -> tuple[str, ...]:
    parts = (value,) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise bad_value(option, value, "is not one name or several")
    return tuple(_text(option, part) for part in parts)


def _counts(option: Option, value: object) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise bad_value(option, value, "is not a list of whole numbers such as 16,16")
    try:
        return tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise bad_value(option, value, "is not a list of whole numbers such as 16,16") from None


def _json_object(option: Option, value: object) -> Mapping[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as problem:
            where = (
                f": {problem.msg} at character {problem.pos}"
                if isinstance(problem, json.JSONDecodeError)
                else ""
            )
            raise bad_value(option, value, f"is not JSON{where}") from None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise bad_value(option, value, "is not a JSON object such as '{\"key\": 1}'")
    return value


def bad_value(option: Option, value: object, why: str) -> FlagError:
    """The refusal of one value: flag, value, reason."""
    try:
        shown = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # a whole number of more digits than Python writes
        shown = value = hex(value)[:80] if isinstance(value, int) else object.__repr__(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return FlagError(
        f"{option.flag} {shown} {why}", flag=option.name, value=value if _plain(value) else shown
    )


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def against_rule(name: str, value: object, rule: str) -> FlagError:
    """The refusal of a flag's value that breaks a rule of the flag's own, such as "must be at least 1"."""
    return FlagError(
        f"{spelled(name)} is {value}; it {rule}", flag=name, value=value if _plain(value) else str(value)
    )
