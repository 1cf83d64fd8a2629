"""Which patterns read a line: the tables of the engines of a log, and what is looked for beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vramledger.engines.log_pattern import LinePattern
from vramledger.observation import Value

Table = tuple[str | None, tuple[LinePattern, ...]]
Reading = tuple[str | None, LinePattern, Mapping[str, Value]]
MOST_SHAPES = 20_000
_DIGITS = b"0123456789"


class Matcher:
    """Reads lines by tables of patterns, the first pattern of each table that fits.

    Which patterns have their anchor in a line is remembered for all lines that are equal without their digits.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = tuple((engine, tuple(patterns)) for engine, patterns in tables)
        self._anchors = tuple(
            (engine, tuple((_shape(pattern.anchor), pattern) for pattern in patterns))
            for engine, patterns in self.tables
        )
        self._known: dict[bytes, tuple[Table, ...]] = {}

    def anchors(self) -> list[str]:
        return [pattern.anchor for _, patterns in self.tables for pattern in patterns]

    def candidates(self, text: str) -> tuple[Table, ...]:
        """Patterns by table that may read `text`, in their order; tables without any are left out."""
        shape = _shape(text)
        known = self._known.get(shape)
        if known is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            known = self._known[shape] = tuple(
                (engine, found)
                for engine, patterns in self._anchors
                if (found := tuple(pattern for anchor, pattern in patterns if anchor in shape))
            )
        return known


def _shape(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, _DIGITS)


def lines_needed(candidates: Iterable[Table]) -> int:
    """Further lines of the printer that the patterns want."""
    return max((pattern.following for _, patterns in candidates for pattern in patterns), default=0)


def readings(candidates: Iterable[Table], lines: Sequence[str]) -> Iterator[Reading]:
    """For each table the first pattern that reads the line `lines[0]` with those after it, as far as there are any."""
    for engine, patterns in candidates:
        for pattern in patterns:
            text = "\n".join(lines[: 1 + pattern.following]) if pattern.following else lines[0]
            values = pattern.read(text)
            if values is not None:
                yield engine, pattern, values
                break


class Signs:
    """Texts that tell an engine's log, of the engines not found yet."""

    def __init__(self, signs: Mapping[str, Iterable[str]]) -> None:
        self._signs = {
            engine: tuple(form for text in texts for form in forms_of(text))
            for engine, texts in signs.items()
        }
        self._texts = {engine: tuple(texts) for engine, texts in signs.items()}

    def __bool__(self) -> bool:
        return bool(self._signs)

    def anchors(self) -> list[str]:
        return [text for engine in self._signs for text in self._texts[engine]]

    def take(self, data: bytes) -> list[str]:
        """Engines whose signs are in `data`, the one with the most first; they are not looked for again."""
        counts = {engine: sum(data.count(form) for form in forms) for engine, forms in self._signs.items()}
        found = sorted((engine for engine, count in counts.items() if count), key=lambda name: -counts[name])
        for engine in found:
            del self._signs[engine]
        return found


def forms_of(text: str) -> tuple[bytes, ...]:
    """`text` as it stands in a log, plain and within JSON."""
    plain = text.encode()
    escaped = {json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    return (plain, *sorted(escaped - {plain}))
