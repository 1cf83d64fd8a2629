"""Regular expressions that came from outside, bounded before Python's engine sees them."""

from __future__ import annotations

import re

from vramledger.errors import ConfigError

MAX_LENGTH = 512
MAX_WIDE = 4
MAX_REPEATS = 12
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")


def compile_pattern(text: str, where: str) -> re.Pattern[str]:
    """A compiled pattern that cannot take exponential time on a module's name.

    Raises ConfigError, naming `where` and the pattern, when it does not compile, is longer than 512
    characters, repeats a group, or has more than 4 `.*` or 12 repetitions in all.
    """
    shown = text if len(text) <= 80 else text[:77] + "..."
    plain = _CLASS.sub("c", _ESCAPED.sub("e", text))
    wide = plain.count(".*") + plain.count(".+")
    repeats = sum(plain.count(mark) for mark in "*+{")
    if len(text) > MAX_LENGTH or wide > MAX_WIDE or repeats > MAX_REPEATS or re.search(r"\)[*+{]", plain):
        raise ConfigError(
            f"{where}: the pattern {shown!r} is too involved to be matched safely", file=where, value=shown
        )
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}: the pattern {shown!r} does not compile: {error}", file=where) from None


def glob_pattern(text: str, where: str) -> re.Pattern[str]:
    """A name with `*` in it as a pattern that matches the module and everything below it."""
    parts = [re.escape(part) for part in re.split(r"\*+", text)]
    return compile_pattern(".*".join(parts) + r"(?:\.|$)", where)


def is_number_sensitive(pattern: re.Pattern[str]) -> bool:
    """Whether the pattern could tell one layer number from another of as many digits."""
    return re.search(r"[0-9]|\\d|\\D", pattern.pattern) is not None
