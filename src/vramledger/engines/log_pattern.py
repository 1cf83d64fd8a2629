"""How an engine words a fact in its log, declared so that one reader serves all engines and versions.

A pattern's named groups carry their unit, and the unit says how the text is read:

    NAME_gib, NAME_mib, NAME_kib    a size printed with decimals: NAME_bytes, a ByteRange as wide as its rounding
    NAME_gb, NAME_mb                the same of decimal units (10^9, 10^6)
    NAME_sized                      the same where the unit is printed beside it ("448.00 KiB", "0 bytes"): NAME_bytes
    NAME_bytes, NAME_tokens, NAME_blocks, NAME_requests, NAME_count, NAME_len, NAME_size, NAME_id    a whole number
    NAME_ratio, NAME_s, max_concurrency    a number
    NAME_percent                    NAME_ratio, divided by 100
    any other                       the text itself

Engines print "GB" for GiB in places (old vLLM, all of SGLang): the group is then NAME_gib, because the value is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from vramledger.ledger import ByteRange
from vramledger.observation import Event, Value
from vramledger.units import GIB, KIB, MIB, TIB

LONGEST_NUMBER = 40

_SIZED = re.compile(r"([0-9][0-9.,]{0,60}) ?(?:([KMGTkmgt])(?:i?B)?|[Bb]ytes|B)")
_UNITS = {"K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZES = {"gib": GIB, "mib": MIB, "kib": KIB, "gb": 10**9, "mb": 10**6}
_WHOLE = frozenset({"bytes", "tokens", "blocks", "requests", "count", "len", "size", "id"})
_NUMBERS = frozenset({"ratio", "s", "concurrency"})


class LinePattern(Struct, frozen=True, kw_only=True):
    """One wording of one fact.

    `anchor` is text that every match contains, the longest and rarest there is, so that a reader can pass over other
    lines without a regular expression. `pattern` is searched in a line whose prefixes (time, level, process, ANSI) are
    gone; write NUM for a printed number. `following` is how many further lines of the same printer are needed; they
    are joined with newlines. `constants` are values that the wording implies. `source` names the engine's file and the releases
    that print it.
    """

    event: Event
    anchor: str
    pattern: re.Pattern[str]
    source: str
    following: int = 0
    constants: Mapping[str, Value] = {}

    def read(self, text: str) -> dict[str, Value] | None:
        """The values of a line, None where it does not match or holds a number that cannot be."""
        if self.anchor not in text:
            return None
        match = self.pattern.search(text)
        if match is None:
            return None
        values = dict(self.constants)
        for name, found in match.groupdict().items():
            if found is None:
                continue
            entry = value_of(name, found)
            if entry is None:
                return None
            values[entry[0]] = entry[1]
        return values


def line_pattern(
    event: Event, anchor: str, pattern: str, *, source: str, following: int = 0, **constants: Value
) -> LinePattern:
    """A pattern as an engine's table writes it; NUM in `pattern` stands for a number with or without commas, a sign and
    decimals."""
    number = r"-?[0-9]{1,30}(?:,[0-9]{3}(?![0-9])){0,8}(?:\.[0-9]{1,9})?"
    return LinePattern(
        event=event,
        anchor=anchor,
        pattern=re.compile(pattern.replace("NUM", number)),
        source=source,
        following=following,
        constants=constants,
    )


def first_match(patterns: Iterable[LinePattern], text: str) -> tuple[LinePattern, dict[str, Value]] | None:
    """The first pattern that reads the line, with its values."""
    for pattern in patterns:
        values = pattern.read(text)
        if values is not None:
            return pattern, values
    return None


def value_of(name: str, text: str) -> tuple[str, Value] | None:
    """What a named group holds, under the name it has inside; None for a number that cannot be."""
    stem, _, unit = name.rpartition("_")
    if unit == "sized":
        size = sized_bytes(text)
        return None if size is None else (f"{stem}_bytes", size)
    if unit in _SIZES:
        size = printed_bytes(text, _SIZES[unit])
        return None if size is None else (f"{stem}_bytes", size)
    if unit not in _WHOLE and unit not in _NUMBERS and unit != "percent":
        return name, text
    digits = text.replace(",", "")
    if len(digits) > LONGEST_NUMBER:
        return None
    try:
        if unit in _WHOLE:
            return name, int(digits)
        number = float(digits)
    except ValueError:
        return None
    return (f"{stem}_ratio", number / 100) if unit == "percent" else (name, number)


def sized_bytes(text: str) -> ByteRange | None:
    """A size printed with its unit ("448.00 KiB", "0 bytes", "15.23GB", "4.00G"), None for anything else.

    Frameworks and engines that print KB, MB or GB divide by 1024 all the same.
    """
    match = _SIZED.fullmatch(text)
    if match is None:
        return None
    number, unit = match.groups()
    if not unit:
        return ByteRange.exact(int(number)) if number.isdecimal() and len(number) <= LONGEST_NUMBER else None
    return printed_bytes(number, _UNITS[unit.upper()])


def printed_bytes(text: str, unit_bytes: int) -> ByteRange | None:
    """A size printed with decimals ("14.99" of GiB) as what it may stand for: half a unit of its last place either way.

    None for what is no number or has more than 40 digits. A negative print stays negative.
    """
    digits = text.replace(",", "")
    match = re.fullmatch(r"(-?)([0-9]+)(?:\.([0-9]+))?", digits)
    if match is None or len(digits) > LONGEST_NUMBER:
        return None
    sign, whole, decimals = match.group(1), match.group(2), match.group(3) or ""
    scale = 10 ** len(decimals)
    scaled = int(whole + decimals) * (-1 if sign else 1)
    expected = scaled * unit_bytes // scale
    half = unit_bytes // (2 * scale)
    return ByteRange(expected - half, expected, expected + half)
