"""Numbers in the messages of reported memory failures, against what the catalogue of messages reads from them.

Two questions for each report: are the figures that the collection names (`parsed`) read, and are the numbers that a
message states beside them? The second list is made here, from the text alone, by what looks like a quantity; it knows
nothing of the catalogue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct

from vramledger.diagnosis.messages import FAILURES
from vramledger.diagnosis.messages.executor_reading import executor_failure
from vramledger.diagnosis.messages.pool_reading import pool_books
from vramledger.diagnosis.messages.torch_reading import torch_oom
from vramledger.engines import engine_name, log_engines
from vramledger.engines.log_pattern import sized_bytes
from vramledger.ledger import ByteRange
from vramledger.observation import Observation
from vramledger.telemetry.log_reading import read_log
from vramledger.units import GIB, KIB, MIB

FILES = ("oom-reports.jsonl", "oom-messages-extra.jsonl")
Number = ByteRange | float

_SCALES = {"gib": GIB, "mib": MIB, "kib": KIB, "bytes": 1}
_UNITS = frozenset({"tokens", "ratio", "count", "id", "len", "size", "requests", "blocks", "index", "s"})
# What the collection calls by another name than the catalogue.
_NAMES = {"torch_allocated": "allocated", "named_process": "process", "gpu": "device", "buffer": "buffer"}
_SIZE = re.compile(r"(?<![\w.,-])([0-9][0-9,]*(?:\.[0-9]+)?) ?(bytes|[KMGT]i?B|[KMGT])(?![\w/])")
_COUNT = re.compile(
    r"(?<![\w.,:/#-])([0-9][0-9,]*) (?:prefill |total |dummy )?(?:tokens|requests|blocks|reqs)\b"
)
_PAIR = re.compile(
    r"(?<![\w.])#?([A-Za-z_][\w.-]*(?:\(\))?)(?:\s?=\s?|: )(-?[0-9][0-9,]*(?:\.[0-9]+)?)(?![\w.:/,-]*[A-Za-z/:]|[0-9%])"
)
# Labels of a printer, and places in a program.
_NO_QUANTITY = frozenset({"pid", "rank", "line"})
_INSIDE = re.compile(r"\((-?[0-9]{2,}(?:\.[0-9]+)?|[0-9]\.[0-9]+)(?:\)|, )")


class Miss(Struct, frozen=True, kw_only=True):
    """A number that was not read. `nearest` is what was read under its name, None where nothing was; `error` is how
    far off that is, in parts of the number. `is_known` tells that something was read of its message."""

    report: str
    message: int
    name: str
    expected: float
    nearest: float | None
    error: float
    is_known: bool


class MessageFile(Struct, frozen=True, kw_only=True):
    """What came of one collection: numbers named by it, numbers found in the texts, and those not read."""

    name: str
    reports: int
    messages: int
    named: int
    stated: int
    known_stated: int
    named_misses: tuple[Miss, ...]
    stated_misses: tuple[Miss, ...]
    unread: int


def message_files(data: Path) -> tuple[MessageFile, ...]:
    """Every collection that is in `data`/groundtruth."""
    folder = data / "groundtruth"
    return tuple(measure(name, read_reports(folder / name)) for name in FILES if (folder / name).is_file())


def read_reports(path: Path) -> list[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as handle:
        return [json.loads(line) for line in handle if line.strip()]


def measure(name: str, reports: Sequence[Mapping[str, Any]]) -> MessageFile:
    named = stated = known = unread = messages = 0
    named_misses: list[Miss] = []
    stated_misses: list[Miss] = []
    read_by_report = read_messages(reports)
    for report in reports:
        texts = report["messages"]
        read = read_by_report[report["id"]]
        messages += len(texts)
        unread += sum(not found for found in read)
        for expected in named_numbers(report):
            named += 1
            miss = _missed(report["id"], expected, read[expected.message], anywhere=False)
            named_misses += [miss] if miss else []
        for expected in (item for number, text in enumerate(texts) for item in stated_numbers(number, text)):
            stated += 1
            known += bool(read[expected.message])
            miss = _missed(report["id"], expected, read[expected.message], anywhere=True)
            stated_misses += [miss] if miss else []
    return MessageFile(
        name=name,
        reports=len(reports),
        messages=messages,
        named=named,
        stated=stated,
        known_stated=known,
        named_misses=tuple(sorted(named_misses, key=lambda item: -item.error)),
        stated_misses=tuple(sorted(stated_misses, key=lambda item: -item.error)),
        unread=unread,
    )


def read_messages(reports: Sequence[Mapping[str, Any]]) -> dict[str, list[list[Observation]]]:
    """By report, for each of its messages what is read from it, the messages taken as lines of one log in their order.

    A message of several lines that the report gives one by one is read with its first; what that reading takes from the
    later ones counts for them too. Reports of one engine are read one after the other by one reader, others alone: a
    reader remembers an engine whose signs it has seen.
    """
    found: dict[str, list[list[Observation]]] = {}
    for engine, group in groupby(sorted(reports, key=_engine_of), key=_engine_of):
        batch = list(group)
        for together in [batch] if engine else [[report] for report in batch]:
            sources = [_Log(report) for report in together]
            firsts = {source.name: source.first_lines for source in sources}
            found |= {name: [[] for _ in lines] for name, lines in firsts.items()}
            for observation in read_log(sources, engine=engine or None, patterns=FAILURES, now_s=0):
                place = observation.place
                last = place.line + observation.text.count("\n")
                lines = firsts[place.source]
                at = max(index for index, line in enumerate(lines) if line <= place.line)
                for index in range(at, len(lines)):
                    if index == at or lines[index] <= last:
                        found[place.source][index].append(observation)
    return found


class _Log(BytesIO):
    """A report's messages as a log of its name; the line at which each of them begins."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        super().__init__("\n".join(report["messages"]).encode())
        self.name = str(report["id"])
        self.first_lines = []
        number = 1
        for text in report["messages"]:
            self.first_lines.append(number)
            number += text.count("\n") + 1


def _engine_of(report: Mapping[str, Any]) -> str:
    """The engine whose log a report's engine writes; empty where none here does."""
    name = engine_name(report.get("engine") or "")
    if "llama" in name:
        name = "llamacpp"
    return name if name in log_engines() else ""


class Expected(Struct, frozen=True):
    """A number that a message holds: under which name, its value, and how far a reading of it may be off."""

    message: int
    name: str
    value: float
    tolerance: float


def named_numbers(report: Mapping[str, Any]) -> Iterator[Expected]:
    """What the collection names, sizes in bytes and good to half a unit of their last place."""
    for part in report.get("parsed") or ():
        for key, value in part.items():
            if key not in ("message", "format"):
                yield from _named(part["message"], key, value)


def _named(message: int, key: str, value: Any) -> Iterator[Expected]:
    if isinstance(value, Mapping):
        for inner, items in value.items():
            yield from _named(message, f"{key} {inner}_{'gib' if key == 'components' else 'count'}", items)
    elif isinstance(value, list):
        for item in value:
            yield from _named(message, key, item)
    elif isinstance(value, int | float):
        stem, scale = _stem(key)
        places = len(str(value).partition(".")[2]) if isinstance(value, float) else 0
        # A figure given in MiB may stand for one printed in GiB with two decimals: the reading's own width covers that.
        yield Expected(message, stem, value * scale, scale * 0.5 / 10**places + 1 if scale > 1 else 1e-9)


def stated_numbers(message: int, text: str) -> Iterator[Expected]:
    """What looks like a quantity in a text: a size, a count, a pair of name and number, a number in parentheses."""
    taken: list[tuple[int, int]] = []
    for pattern in (_SIZE, _COUNT, _PAIR, _INSIDE):
        for match in pattern.finditer(text):
            group = 2 if pattern is _PAIR else 1
            span = match.span(group)
            after = text[span[1] : span[1] + 3]
            if after.startswith(("..", "…")) or any(
                start < span[1] and span[0] < end for start, end in taken
            ):
                continue
            taken.append(span)
            digits = re.sub(r",(?=[0-9]{1,2}$)", ".", match[group]).replace(",", "")
            size = sized_bytes(f"{digits} {match[2]}") if pattern is _SIZE else None
            name = match[1] if pattern is _PAIR else " ".join(text[max(0, span[0] - 24) : span[0]].split())
            if name in _NO_QUANTITY:
                continue
            if size is not None:
                yield Expected(message, name, size.expected, size.high - size.expected + 1)
            else:
                yield Expected(message, name, float(digits), 1e-9)


def readings(observation: Observation) -> Iterator[tuple[str, Number]]:
    """Every number of an observation under its name without the unit, with those that are made of its texts."""
    for name, value in observation.values.items():
        if isinstance(value, ByteRange):
            yield _stem(name)[0], value
        elif isinstance(value, int) and name.endswith("_bytes"):
            yield _stem(name)[0], ByteRange.exact(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield _stem(name)[0], float(value)
    oom = torch_oom(observation)
    for item in oom.processes if oom else ():
        if item.used is not None:
            yield "process", item.used
    for books in pool_books(observation):
        held = (
            books.total,
            books.available,
            books.evictable,
            books.free_or_evictable,
            books.protected,
            books.session_held,
            books.uncached,
        )
        yield from ((f"books {books.pool}", float(item)) for item in held if item is not None)
    failure = executor_failure(observation)
    for part in failure.components if failure else ():
        yield f"components {part.name}", part.free_before
        yield f"components {part.name}", part.free_after


def _missed(
    report: str, expected: Expected, observations: Sequence[Observation], *, anywhere: bool
) -> Miss | None:
    """Nothing where a reading of the name (or, `anywhere`, of any) agrees."""
    found = [
        number
        for observation in observations
        for name, number in readings(observation)
        if anywhere or name == expected.name
    ]
    if any(_agrees(expected, number) for number in found):
        return None
    middles = [item.expected if isinstance(item, ByteRange) else item for item in found]
    nearest = min(middles, key=lambda item: abs(item - expected.value), default=None)
    return Miss(
        report=report,
        message=expected.message,
        name=expected.name,
        expected=expected.value,
        nearest=nearest,
        is_known=bool(observations),
        error=1.0
        if nearest is None or anywhere
        else abs(nearest - expected.value) / max(abs(expected.value), 1),
    )


def _agrees(expected: Expected, number: Number) -> bool:
    if isinstance(number, ByteRange):
        # A table may name its unit once for all rows.
        return any(
            number.low - expected.tolerance <= expected.value * scale <= number.high + expected.tolerance
            for scale in ((1,) if expected.tolerance >= 1 else (1, KIB, MIB, GIB))
        )
    return any(  # a share may be printed in percent
        abs(number * scale - expected.value) <= max(expected.tolerance, 1e-9 * abs(expected.value))
        for scale in (1, 100)
    )


def _stem(name: str) -> tuple[str, int]:
    """A name without its unit, as the catalogue calls it, and the bytes of that unit."""
    stem, _, unit = name.rpartition("_")
    if unit in _SCALES:
        return _NAMES.get(stem, stem), _SCALES[unit]
    if unit in _UNITS and stem:
        return _NAMES.get(stem, stem), 1
    return _NAMES.get(name, name), 1


def text(files: Sequence[MessageFile], *, worst: int) -> str:
    """The section for a terminal."""
    lines = ["Numbers in the messages of memory failures"]
    for item in files:
        lines.append(
            f"  {item.name}: {item.reports} reports, {item.messages} messages"
            f" ({item.unread} of them in words of no known program)"
        )
        lines.append(f"    named by the collection: {_share(item.named, item.named_misses)} read")
        lines.append(
            f"    stated in the texts: {_share(item.stated, item.stated_misses)} read;"
            f" {_share(item.known_stated, _known_misses(item))} in messages of known programs"
        )
        for miss in item.named_misses[:worst]:
            nearest = "nothing" if miss.nearest is None else f"{miss.nearest:.10g}"
            lines.append(
                f"    missed: {miss.report} message {miss.message} {miss.name}: {miss.expected:.10g}, read {nearest}"
            )
        for miss in item.stated_misses[:worst]:
            lines.append(
                f"    not read: {miss.report} message {miss.message} {miss.expected:.10g} ({miss.name})"
            )
    return "\n".join(lines)


def markdown(files: Sequence[MessageFile]) -> str:
    """The section for the documentation."""
    if not files:
        return ""
    rows = "\n".join(
        f"| {item.name} | {item.reports} | {item.messages} | {item.named} | {item.named - len(item.named_misses)} |"
        for item in files
    )
    return (
        "\n## Numbers in the messages of memory failures\n\n"
        "The figures that a collection of reported failures names in its messages, and how many of them are read from the"
        " text, each within half a unit of its printed last place.\n\n"
        "| collection | reports | messages | numbers | read |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        f"{rows}\n"
    )


def _known_misses(item: MessageFile) -> tuple[Miss, ...]:
    return tuple(miss for miss in item.stated_misses if miss.is_known)


def _share(count: int, misses: Sequence[Miss]) -> str:
    return f"{count - len(misses)} of {count}"
