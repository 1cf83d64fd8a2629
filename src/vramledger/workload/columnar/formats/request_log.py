"""What request logs of engines have in common: the time of a line, and requests that are told of in several lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from vramledger.errors import InputError
from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.json_lines import checked_piece
from vramledger.workload.columnar.piece import MOST_TOKENS, Piece
from vramledger.workload.columnar.source import Source

Tokens = npt.NDArray[np.int64]
BLOCK_TOKENS = 16
MOST_REQUESTS = 2**23
MOST_BLOCKS = 2**25
_TIME = re.compile(rb"(?:(\d{4})[-/])?(\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?!\d)")
_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
DAY_NS = 86_400 * 10**9


class LineTimes:
    """The first time in the first characters of each line, in nanoseconds; a log without years goes on after December."""

    def __init__(self) -> None:
        self._year = 1970
        self._last = 0
        self.has_fractions = False

    def of(self, line: bytes) -> int | None:
        """None where a line has no time."""
        found = _TIME.search(line, 0, 160)
        if found is None:
            return None
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
        if year and not 1970 <= year < 2200:
            return None
        if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
            return None
        fraction = found[7] or b""
        self.has_fractions = self.has_fractions or bool(fraction)
        time = _days(year or self._year, month, day) * DAY_NS + ((hour * 60 + minute) * 60 + second) * 10**9
        if not year and time < self._last - 300 * DAY_NS:
            self._year += 1
            return self.of(line)
        self._last = time
        return time + int(fraction.ljust(9, b"0"))


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 began, after the Gregorian calendar."""
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400 - 477
    leap_day = month > 2 and (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    return (year - 1970) * 365 + leaps + _BEFORE_MONTH[month - 1] + leap_day + day - 1


class Logged(Struct):
    """One request as lines told of it; -1 is what they did not say. `prompt_ids` are the prompt's tokens."""

    line: int
    arrival_ns: int
    prompt_tokens: int = -1
    output_tokens: int = -1
    max_output_tokens: int = -1
    branches: int = 1
    model: str = ""
    adapter: str = ""
    end_ns: int = -1
    cancel_ns: int = -1
    priority: int = 0
    prompt_ids: Tokens | None = None


class Blocks:
    """Identities of a prompt's full blocks of BLOCK_TOKENS tokens, each chained to those before it."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], int] = {}

    def of(self, ids: Tokens) -> list[int]:
        """Those of one prompt. Raises InputError beyond MOST_BLOCKS different ones."""
        out = []
        state = -1
        for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            key = (state, ids[start : start + BLOCK_TOKENS].tobytes())
            state = self._known.setdefault(key, len(self._known))
            out.append(state)
        if len(self._known) > MOST_BLOCKS:
            raise InputError(f"the log's prompts have more than {MOST_BLOCKS:,} different blocks")
        return out


def token_ids(text: bytes) -> Tokens | None:
    """Ids between commas; None for anything else, and for a list that was cut."""
    if not text.strip():
        return np.empty(0, dtype=np.int64)
    try:
        return np.array(text.split(b","), dtype="S20").astype(np.int64)
    except (ValueError, OverflowError):
        return None


def lines_of(source: Source, marks: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
    """Lines in which one of `marks` stands, with their numbers."""
    for first, lines in source.line_blocks():
        for number, line in enumerate(lines, start=first):
            if any(mark in line for mark in marks):
                yield number, line


def logged_piece(requests: Mapping[str, Logged], found: Findings, *, without_outputs: str) -> Piece:
    """The requests whose prompts are known, in order of their lines.

    Where no line says what was made, the bound that the client asked for stands for it, told as `without_outputs`.
    """
    usable: list[Logged] = []
    by_bound = []
    for item in requests.values():
        if item.prompt_tokens < 0 or item.arrival_ns < 0:
            found.bad(item.line, "tells of a request whose prompt's length or time no line says")
            continue
        if item.output_tokens < 0 and item.max_output_tokens > 0:
            item.output_tokens = item.max_output_tokens
            by_bound.append(item.line)
        if not 0 <= item.output_tokens <= MOST_TOKENS or item.prompt_tokens > MOST_TOKENS:
            found.bad(item.line, "tells of a request whose output's length no line says")
            continue
        usable.append(item)
    if by_bound:
        found.count(without_outputs, by_bound)
    blocks: list[Sequence[int]] | None = None
    if any(_ids(item) is not None for item in usable):
        names = Blocks()
        blocks = [() if (ids := _ids(item)) is None else names.of(ids) for item in usable]
        found.block_tokens = BLOCK_TOKENS
    return checked_piece(
        found,
        np.array([item.line for item in usable], dtype=np.int64),
        arrival_ns=[item.arrival_ns for item in usable],
        prompt_tokens=[item.prompt_tokens for item in usable],
        output_tokens=[item.output_tokens for item in usable],
        blocks=blocks,
        max_output_tokens=[item.max_output_tokens for item in usable],
        branches=[max(item.branches, 1) for item in usable],
        boundary=[found.boundary(item.model[:200], item.adapter[:200]) for item in usable],
        cancel_ns=[
            item.cancel_ns - item.arrival_ns if item.cancel_ns >= item.arrival_ns else -1 for item in usable
        ],
        priority=[item.priority for item in usable],
    )


def _ids(item: Logged) -> Tokens | None:
    """A prompt's ids, unless the log has cut them."""
    ids = item.prompt_ids
    return ids if ids is not None and len(ids) == item.prompt_tokens else None


def bounded(requests: Mapping[str, Logged], found: Findings) -> None:
    """Raises InputError for a log of more than MOST_REQUESTS requests."""
    if len(requests) > MOST_REQUESTS:
        raise InputError(
            f"{found.source_name} tells of more than {MOST_REQUESTS:,} requests", file=found.source_name
        )
