"""Failure messages as patterns whose facts are looked for one by one, so that a message that was cut, wrapped by a
terminal or quoted inside another line still gives what is there.

In the regular expressions here INT stands for a whole number, NUM for a number with or without decimals, SIZE for a size with
its unit. None of them matches a number that runs into an ellipsis: of "1518516..." nobody knows the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from vramledger.diagnosis.messages.kind import MessageKind
from vramledger.engines.log_pattern import LinePattern, value_of
from vramledger.observation import Event, Value

LOOK_BACK = 600
LOOK_AHEAD = 6000
CLOSE_BY = 120
_OCCURRENCES = 4

_END = r"(?![0-9]|\.[0-9.]|\.\.|…)"
_MACROS = (
    ("INT", rf"-?[0-9]{{1,20}}{_END}"),
    ("NUM", rf"-?[0-9]{{1,20}}(?:,[0-9]{{1,2}}(?![0-9,.])|(?:,[0-9]{{3}}){{0,6}}(?:\.[0-9]{{1,18}})?){_END}"),
    ("SIZE", r"(?<![0-9.])[0-9]{1,20}(?:\.[0-9]{1,6})? ?(?:[Bb]ytes|[KMGT]i?B|[KMGT]|B)(?![A-Za-z])"),
)
_ESCAPES = (("\\n", "\n"), ("\\t", " "), ('\\"', '"'), ("\\'", "'"), ("\r", ""))
# A printer of a locale with decimal commas: thousands are marked off by three digits.
_DECIMAL_COMMA = re.compile(r"^(-?[0-9]{1,20}),([0-9]{1,2})$")
_WRAP = re.compile(r"[ \t]{0,200}\n[ \t]{0,200}")


class Part(Struct, frozen=True, kw_only=True):
    """One fact of a message, looked for by itself from the message's own beginning on, or in what stands before it too
    (`anywhere`). `constants` are values that its presence implies."""

    pattern: re.Pattern[str]
    constants: Mapping[str, Value] = {}
    anywhere: bool = False


class MessagePattern(LinePattern, frozen=True, kw_only=True):
    """A wording of a failure: `pattern` tells that it is there, `parts` add what is left of it.

    The text is read from LOOK_BACK characters before the anchor to LOOK_AHEAD behind it, with escaped newlines of a JSON
    string as newlines and broken lines joined: by a blank and, for what is not found so, by nothing, or the other way
    round where all lines but the last are equally long, as a terminal breaks them. Lines that
    follow are its own up to one that holds the anchor again, and to the one in which `until` is found. Where `unless` is
    found close to the anchor, the line speaks of what could happen, and is not read.
    """

    parts: tuple[Part, ...] = ()
    until: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None

    def read(self, text: str) -> dict[str, Value] | None:
        """The values of a message, None where it is not there. A part that cannot be read is left out."""
        for window in _windows(self.anchor, text):
            if self.unless is not None and self.unless.search(_close_to(self.anchor, window)):
                continue
            texts = _joined(self._own_lines(window))
            for joined in texts:
                match = self.pattern.search(joined)
                if match is None:
                    continue
                values = dict(self.constants)
                _add(values, match)
                own = (joined[match.start() :], *(other for other in texts if other is not joined))
                for part in self.parts:
                    _read_part(values, part, texts if part.anywhere else own)
                return values
        return None

    def _own_lines(self, window: str) -> str:
        for escaped, meant in _ESCAPES:
            window = window.replace(escaped, meant)
        if "\n" not in window:
            return window
        lines = window.split("\n")
        first = next((number for number, line in enumerate(lines) if self.anchor in line), 0)
        own = lines[: first + 1]
        for line in lines[first + 1 :]:
            over = self.until is not None and self.until.search("".join(own[-2:]))
            if over or self.anchor in line:
                break
            own.append(line)
        return "\n".join(own)


def wording(
    kind: MessageKind,
    anchor: str,
    pattern: str,
    *parts: str | Part,
    source: str | None = None,
    following: int = 0,
    until: str = "",
    unless: str = "",
    **constants: Value,
) -> MessagePattern:
    """One wording of a kind of message. A part given as text is a regular expression with named groups.

    `source` is the kind's own unless the wording is of another file or release.
    """
    return MessagePattern(
        event=Event.FAILURE,
        anchor=anchor,
        pattern=compiled(pattern),
        source=source or kind.source,
        following=following,
        constants={"message": kind.name, **constants},
        until=re.compile(until) if until else None,
        unless=re.compile(unless) if unless else None,
        parts=tuple(item if isinstance(item, Part) else Part(pattern=compiled(item)) for item in parts),
    )


def part(pattern: str, *, anywhere: bool = False, **constants: Value) -> Part:
    return Part(pattern=compiled(pattern), constants=constants, anywhere=anywhere)


def compiled(pattern: str) -> re.Pattern[str]:
    """The expression with INT, NUM and SIZE filled in; a blank in it stands for a blank of the joined text."""
    for name, meaning in _MACROS:
        pattern = re.sub(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", meaning.replace("\\", r"\\"), pattern)
    return re.compile(pattern)


def _windows(anchor: str, text: str) -> Iterator[str]:
    """What is read around each place of the anchor, the first few of them."""
    start = 0
    for _ in range(_OCCURRENCES):
        found = text.find(anchor, start)
        if found < 0:
            return
        yield text[max(0, found - LOOK_BACK) : found + LOOK_AHEAD]
        start = found + len(anchor)


def _close_to(anchor: str, window: str) -> str:
    at = window.find(anchor)
    return window[max(0, at - CLOSE_BY) : at + len(anchor) + CLOSE_BY // 2]


def _joined(window: str) -> tuple[str, ...]:
    if "\n" not in window:
        return (window,)
    spaced = _WRAP.sub(" ", window)
    lines = window.split("\n")
    width = max(len(line) for line in lines[:-1])
    # A reader takes blanks off the end of a line; a terminal's lines are short by no more than those.
    if len(lines) > 2 and all(width - len(line) <= 2 for line in lines[:-1]):
        return "".join(line.ljust(width) for line in lines[:-1]) + lines[-1], spaced, window
    return spaced, _WRAP.sub("", window), window


def _read_part(values: dict[str, Value], item: Part, texts: tuple[str, ...]) -> None:
    for text in texts:
        match = item.pattern.search(text)
        if match is not None:
            _add(values, match)
            for name, value in item.constants.items():
                values.setdefault(name, value)
            return


def _add(values: dict[str, Value], match: re.Match[str]) -> None:
    for name, found in match.groupdict().items():
        entry = None if found is None else value_of(name, _DECIMAL_COMMA.sub(r"\1.\2", found))
        if entry is not None:
            values.setdefault(*entry)
