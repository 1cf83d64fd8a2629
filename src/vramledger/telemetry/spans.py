"""A series cut at its marks: of each quantity what it was first, last, least and most within each span."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from vramledger.errors import InputError
from vramledger.ledger import Phase
from vramledger.observation import Sample
from vramledger.telemetry.marks import BEFORE_LOAD, END, MARK

MOST_SPANS = 20_000
MOST_CELLS = 500_000


class Key(Struct, frozen=True):
    """One quantity of one thing."""

    source: str
    name: str
    rank: int | None = None
    pid: int | None = None
    label: str = ""


class Extent(Struct, frozen=True, kw_only=True):
    """One quantity within one span."""

    first: int | float
    last: int | float
    least: int | float
    most: int | float
    first_s: float
    last_s: float


class Span(Struct, frozen=True, kw_only=True):
    """What was sampled from one mark to the next. A span that no round of questions fell into has no quantities."""

    label: str
    phase: Phase | None
    from_s: float
    extents: dict[Key, Extent]


class Spans(Struct, frozen=True, kw_only=True):
    """A whole series. `ended` is whether its last row says that it was ended and not cut."""

    spans: tuple[Span, ...]
    from_s: float | None
    until_s: float | None
    rows: int
    ended: bool


def spans_of(samples: Iterable[Sample]) -> Spans:
    """The series cut at its marks, in one pass.

    Raises InputError for a series of more than 20,000 spans or of more quantities than can be kept.
    """
    spans: list[Span] = []
    current: Span | None = None
    from_s = until_s = None
    rows = cells = 0
    ended = False
    for sample in samples:
        rows += 1
        from_s = sample.at_s if from_s is None else min(from_s, sample.at_s)
        until_s = sample.at_s if until_s is None else max(until_s, sample.at_s)
        if sample.name == MARK:
            ended = sample.label == END
            if not ended:
                current = Span(label=sample.label, phase=sample.phase, from_s=sample.at_s, extents={})
                spans.append(current)
        else:
            if current is None:
                current = Span(label=BEFORE_LOAD, phase=sample.phase, from_s=sample.at_s, extents={})
                spans.append(current)
            cells += _add(current, sample)
        if len(spans) > MOST_SPANS or cells > MOST_CELLS:
            raise InputError(
                f"the series has more than {MOST_SPANS:,} marks or {MOST_CELLS:,} quantities between them"
            )
    return Spans(spans=tuple(spans), from_s=from_s, until_s=until_s, rows=rows, ended=ended)


def _add(span: Span, sample: Sample) -> int:
    key = Key(sample.source, sample.name, sample.rank, sample.pid, sample.label)
    before = span.extents.get(key)
    value = sample.value
    span.extents[key] = Extent(
        first=value if before is None else before.first,
        last=value,
        least=value if before is None else min(before.least, value),
        most=value if before is None else max(before.most, value),
        first_s=sample.at_s if before is None else before.first_s,
        last_s=sample.at_s,
    )
    return 1 if before is None else 0
