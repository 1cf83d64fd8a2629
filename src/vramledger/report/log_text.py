"""A log as a person reads it: what was said once as a timeline, what repeats summed up, then what failed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby

from vramledger.documents.plan import ByteInterval
from vramledger.observation import Event
from vramledger.report.log_document import (
    LogDocument,
    LogPhase,
    ObservationDocument,
    RepeatedDocument,
    SeriesDocument,
)
from vramledger.report.settings_text import settings_text
from vramledger.report.text import Line, columns, line, ranks_text, wrapped
from vramledger.units import counted, format_bytes

MOST_ALIKE = 4
MOST_FAILURES = 12
LONGEST_FAILURE = 400
LONGEST_VALUE = 80
# A printed size is shown as a range where its rounding is more than a twentieth of it.
WIDE_SHARE = 20
_LEFT_OUT = frozenset({"elapsed_s", "message"})
_IDENTITY = ("engine_version", "model", "architecture", "dtype", "quantization", "device")
_NOUNS: dict[str, str] = {
    Event.STEP: "report",
    Event.ADMITTED: "admission",
    Event.FINISHED: "finished request",
    Event.PREEMPTION: "preemption",
}
_STYLES: dict[LogPhase, str] = {"load": "weights", "warm-up": "graph_pool", "service": "kv_cache"}


def log_lines(document: LogDocument, *, width: int = 80) -> Iterator[Line]:
    """The whole page."""
    times = [source.from_s for source in document.sources] + [one.at_s for one in document.observations]
    first = min((at_s for at_s in times if at_s is not None), default=None)
    yield from _title(document, width)
    yield from _settings(document, width)
    told = [one for one in document.observations if one.event not in (Event.SETTINGS, Event.FAILURE)]
    if told:
        yield line()
        yield line("Timeline", "head")
        for phase, rows in groupby(told, key=lambda one: one.phase):
            yield line(f"  {phase}", _STYLES.get(phase, "dim"))
            yield from columns(list(_rows(list(rows), first)), right=(0, 1), width=width, wrap_column=3)
    if document.repeated:
        yield line()
        yield line("In service", "head")
        for found in document.repeated:
            yield from _repeated(found, first, width)
    if document.failures:
        yield line()
        yield from _failures(document, first, width)
    if document.notes:
        yield line()
        yield line("Not read, or not shown", "head")
        for note in document.notes:
            yield from wrapped(note, width, first="  ", style="unsure")


def observation_lines(one: ObservationDocument, *, width: int = 80) -> Iterator[Line]:
    """One observation on its own, as a followed log shows it."""
    style = "bad" if one.event is Event.FAILURE else _STYLES.get(one.phase, "")
    said = one.text if one.event is Event.FAILURE else _values(one)
    words = [_clock(one.at_s), one.phase, one.event.replace("_", " "), _printers([one]), said]
    yield from wrapped("  ".join(word for word in words if word), width, rest="    ", style=style)


def _title(document: LogDocument, width: int) -> Iterator[Line]:
    known = {
        name: str(one.values[name])
        for one in document.observations
        for name in _IDENTITY
        if name in one.values
    }
    engine = f"{' and '.join(document.engines)} {known.pop('engine_version', '')}".strip()
    head = [engine or "no known engine", *(known[name] for name in _IDENTITY if name in known)]
    yield from wrapped(" · ".join(dict.fromkeys(head)), width, rest="  ", style="head")
    for source in document.sources:
        times = ""
        if source.from_s is not None and source.until_s is not None:
            times = f", {_date(source.from_s)} to {_date(source.until_s)} ({_span(source.until_s - source.from_s)})"
        size = f"{source.name}: {counted(source.lines, 'line')}, {format_bytes(source.size_bytes)}{times}"
        yield from wrapped(size, width, first="  ", rest="    ")


def _settings(document: LogDocument, width: int) -> Iterator[Line]:
    text = settings_text(document.settings, document.engines)
    if text:
        yield line()
        yield line("Settings as printed", "head")
        yield from wrapped(text, width, first="  ")


def _rows(group: Sequence[ObservationDocument], first: float | None) -> Iterator[list[str]]:
    """When, which line, what, who and how much; ranks that say the same are one row, long runs of a kind are cut."""
    alike = [list(same) for _, same in groupby(group, key=lambda one: (one.event, _values(one)))]
    for event, run in groupby(alike, key=lambda same: same[0].event):
        rows = list(run)
        for number, same in enumerate(rows):
            if len(rows) > MOST_ALIKE and number == MOST_ALIKE - 2:
                yield ["", "", "", f"... {len(rows) - MOST_ALIKE + 1} more of this kind"]
            if len(rows) <= MOST_ALIKE or number < MOST_ALIKE - 2 or number == len(rows) - 1:
                who = _printers(same)
                said = _values(same[0]) or same[0].text[:100]
                yield [
                    _since(same[0], first).rjust(13),
                    f":{same[0].line}".rjust(7),
                    event.replace("_", " "),
                    f"{who}: {said}" if who else said,
                ]


def _repeated(found: RepeatedDocument, first: float | None, width: int) -> Iterator[Line]:
    who = f" ({found.printer})" if found.printer else ""
    span = (
        ""
        if found.from_s is None or found.until_s is None
        else f" over {_span(found.until_s - found.from_s)}"
    )
    yield from wrapped(f"{counted(found.count, _NOUNS[found.event])}{who}{span}", width, first="  ")
    rows = [["    ", "least", "most", "last", "most at"]]
    for series in found.series:
        at = "" if series.highest_at_s is None or first is None else _signed(series.highest_at_s - first)
        rows.append(["    " + _label(series), *_ends(series), at])
    if found.series:
        yield from columns(rows, right=(1, 2, 3, 4), styles=("dim",), width=width)


def _failures(document: LogDocument, first: float | None, width: int) -> Iterator[Line]:
    yield line("Failure messages (`vramledger diagnose` says what they mean)", "head")
    shown: set[str] = set()
    for one in document.observations:
        kind = str(one.values.get("message", "failure"))
        if one.event is not Event.FAILURE or kind in shown:
            continue
        shown.add(kind)
        if len(shown) > MOST_FAILURES:
            yield line(f"  and {len(document.failures) - MOST_FAILURES} more kinds (--json has all)")
            break
        count = document.failures.get(kind, 1)
        times = f", {count:,} times" if count > 1 else ""
        where = f"  {kind}{times}; first at line {one.line:,}, {_since(one, first).strip() or 'no time'}"
        yield from wrapped(where, width, rest="    ", style="bad")
        yield from wrapped(_short(one.text, LONGEST_FAILURE), width, first="    ")


def _values(one: ObservationDocument) -> str:
    shown = (_value(name, value) for name, value in one.values.items() if name not in _LEFT_OUT)
    return ", ".join(f"{name} {text}" for name, text in shown)


def _value(name: str, value: int | float | str | bool | ByteInterval) -> tuple[str, str]:
    """A value's name without its unit, and the value with it."""
    stem, _, unit = name.rpartition("_")
    label = stem.replace("_", " ") or name
    if isinstance(value, ByteInterval):
        if (value.high - value.low) * WIDE_SHARE > value.expected:
            return label, f"{format_bytes(value.low)} to {format_bytes(value.high)}"
        return label, format_bytes(value.expected)
    if isinstance(value, bool | str):
        return name.replace("_", " "), _short(str(value))
    if unit == "bytes":
        return label, format_bytes(int(value))
    if unit == "ratio":
        return label, f"{value:.1%}"
    if name.endswith("_per_s"):
        return name.removesuffix("_per_s").replace("_", " "), f"{value:,.1f}/s"
    if unit == "s":
        return label, f"{value:,.2f} s"
    return name.replace("_", " "), f"{value:,}"


def _short(text: str, longest: int = LONGEST_VALUE) -> str:
    return text if len(text) <= longest else text[:longest] + "..."


def _label(series: SeriesDocument) -> str:
    return _value(series.name, series.last)[0]


def _ends(series: SeriesDocument) -> list[str]:
    ends = (series.lowest, series.highest, series.last)
    whole = all(end == int(end) for end in ends)
    return [_value(series.name, int(end) if whole else end)[1] for end in ends]


def _printers(group: Sequence[ObservationDocument]) -> str:
    ranks = tuple(sorted({one.rank for one in group if one.rank is not None}))
    containers = sorted({one.container for one in group if one.container is not None})
    return " ".join([*containers[:1], *([ranks_text(ranks)] if ranks else [])])


def _since(one: ObservationDocument, first: float | None) -> str:
    if one.at_s is not None and first is not None:
        return _signed(one.at_s - first)
    elapsed = one.values.get("elapsed_s")
    return _signed(float(elapsed)) if isinstance(elapsed, int | float) else ""


def _signed(seconds: float) -> str:
    return _span(seconds) if seconds < 0 else f"+{_span(seconds)}"


def _span(seconds: float) -> str:
    """ "12.3 s", "4 min 05 s", "3 h 12 min", "2 d 03 h"."""
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{sign}{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes:02} min" if hours < 48 else f"{sign}{hours // 24} d {hours % 24:02} h"


def _date(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))


def _clock(at_s: float | None) -> str:
    return "" if at_s is None else time.strftime("%H:%M:%S", time.gmtime(at_s))
