"""Which patterns read a line: the tables of the engines of a log, and what is looked for beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vramledger.engines.log_pattern import LinePattern
from vramledger.observation import Event, Value
from vramledger.telemetry.log_anchors import automaton, without_digits

Table = tuple[str | None, tuple[LinePattern, ...]]
Reading = tuple[str | None, LinePattern, Mapping[str, Value]]
MOST_SHAPES = 20_000

# With these words engines begin a line that quotes what a client sent, or what it was answered: vLLM's request logger,
# SGLang's --log-requests, llama-server -v, Ollama's debug lines. All that follows are words of people.
_QUOTES = (
    "Received request ",
    "Generated response ",
    "Receive: obj=",
    "Finish: obj=",
    "log_server_r: ",
    'msg="chat request"',
    'msg="generate request"',
    'msg="completion request"',
)
_OF_REQUESTS = frozenset({Event.ADMITTED, Event.FINISHED})
SERVICE = _OF_REQUESTS | {Event.STEP}
_QUOTES_BEGIN = 200


class Matcher:
    """Reads lines by tables of patterns, the first pattern of each table that fits.

    Anchors of a line are found by an automaton where its library is installed. Otherwise they are remembered for
    all lines that are equal without their digits.
    """

    def __init__(self, tables: Iterable[Table], *, library: bool = True) -> None:
        self.tables = tuple((engine, tuple(patterns)) for engine, patterns in tables)
        anchors = sorted({pattern.anchor for _, patterns in self.tables for pattern in patterns})
        self._automaton = automaton([anchor.encode() for anchor in anchors]) if library else None
        self._anchors = tuple((anchor, without_digits(anchor.encode())) for anchor in anchors)
        self._by_shape: dict[bytes, tuple[Table, ...]] = {}
        self._by_anchors: dict[frozenset[str], tuple[Table, ...]] = {}

    def anchors(self) -> list[str]:
        return [anchor for anchor, _ in self._anchors]

    def rare_anchors(self) -> list[str]:
        """Without those that lines of steps and requests alone hold, which a log in service is full of."""
        rare = {p.anchor for _, patterns in self.tables for p in patterns if p.event not in SERVICE}
        return sorted(rare)

    def candidates(self, text: str) -> tuple[Table, ...]:
        """Patterns by table that may read `text`, in their order; tables without any are left out."""
        data = text.encode("utf-8", "surrogatepass")
        if self._automaton is not None:
            found = self._automaton.find_matches_as_indexes(data, overlapping=True)
            return self._with({self._anchors[number][0] for number, _, _ in found}) if found else ()
        shape = without_digits(data)
        known = self._by_shape.get(shape)
        if known is None:
            if len(self._by_shape) >= MOST_SHAPES:
                self._by_shape.clear()
            known = self._with({anchor for anchor, reduced in self._anchors if reduced in shape})
            self._by_shape[shape] = known
        return known

    def _with(self, anchors: set[str]) -> tuple[Table, ...]:
        key = frozenset(anchors)
        known = self._by_anchors.get(key)
        if known is None:
            if len(self._by_anchors) >= MOST_SHAPES:
                self._by_anchors.clear()
            known = self._by_anchors[key] = tuple(
                (engine, found)
                for engine, patterns in self.tables
                if (found := tuple(pattern for pattern in patterns if pattern.anchor in anchors))
            )
        return known


def lines_needed(candidates: Iterable[Table]) -> int:
    """Further lines of the printer that the patterns want."""
    return max((pattern.following for _, patterns in candidates for pattern in patterns), default=0)


def readings(candidates: Iterable[Table], lines: Sequence[str]) -> Iterator[Reading]:
    """For each table the first pattern that reads the line `lines[0]` with those after it, as far as there are any.

    A line that quotes a client says nothing but that the request came or ended."""
    quotes = any(words in lines[0][:_QUOTES_BEGIN] for words in _QUOTES)
    for engine, patterns in candidates:
        for pattern in patterns:
            if quotes and pattern.event not in _OF_REQUESTS:
                continue
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
        self._renew()

    def __bool__(self) -> bool:
        return bool(self._signs)

    def anchors(self) -> list[str]:
        return [text for engine in self._signs for text in self._texts[engine]]

    def take(self, data: bytes) -> list[str]:
        """Engines whose signs are in `data`, the one with the most first; they are not looked for again."""
        if self._automaton is not None:
            if not self._automaton.find_matches_as_indexes(data):
                return []
        elif not any(form in data for form in self._forms):
            return []
        counts = {engine: sum(data.count(form) for form in forms) for engine, forms in self._signs.items()}
        found = sorted((engine for engine, count in counts.items() if count), key=lambda name: -counts[name])
        for engine in found:
            del self._signs[engine]
        self._renew()
        return found

    def _renew(self) -> None:
        self._forms = [form for forms in self._signs.values() for form in forms]
        self._automaton = automaton(self._forms)


def forms_of(text: str) -> tuple[bytes, ...]:
    """`text` as it stands in a log, plain and within JSON."""
    plain = text.encode()
    escaped = {json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    return (plain, *sorted(escaped - {plain}))
