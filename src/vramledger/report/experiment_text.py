"""An experiment as a person reads it in a terminal: the verdict, its figures, every stretch of load, what grew, what was checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vramledger.experiment.folder import RECORDS, REPORT
from vramledger.experiment.result import Experiment
from vramledger.report.experiment_picture import shortened
from vramledger.report.experiment_tables import (
    Table,
    accuracy_table,
    checks_table,
    stages_table,
    steps_table,
    trends_table,
    without_empty,
)
from vramledger.report.experiment_words import (
    conditions_of,
    doubts,
    head_facts,
    model_name,
    notes_of,
    standing,
    trend_name,
    verdict_text,
)
from vramledger.report.text import Line, columns, line, utc_text, wrapped

_BELOW = frozenset({"in words", "why"})
_LONGEST = 32


def experiment_lines(found: Experiment, *, width: int = 80, out: Path | None = None) -> Iterator[Line]:
    """The page. `out` is the folder that it was written to."""
    target = found.target
    engine = " ".join(part for part in (target.engine, target.engine_version) if part)
    named = " · ".join(part for part in (model_name(found), engine, utc_text(found.began_s)) if part)
    word, style = standing(found)
    yield from wrapped(f"capacity of {named}", width, rest="  ", style="head")
    yield line(word, style)
    yield from wrapped(verdict_text(found), width, first="  ")
    if found.failure is None:
        for reason in doubts(found):
            yield from wrapped(reason, width, first="  ! ", rest="    ", style="unsure")
    else:
        yield from _failure(found, width)
    yield line()
    rows = [(f"  {fact.name}", fact.value, fact.note) for fact in head_facts(found)]
    styles = [fact.style for fact in head_facts(found)]
    yield from columns(rows, styles=styles, width=width, wrap_column=2)
    yield line()
    yield line("conditions", "head")
    for name, value in conditions_of(found):
        yield from wrapped(value, width, first=f"  {name:12}", rest=" " * 14)
    for text in found.conditions:
        yield from wrapped(text, width, first="  - ", rest="    ")
    for title, table in (
        ("load", stages_table(found)),
        ("forecasts", accuracy_table(found)),
        ("growth over the steady stretch", trends_table(found, has_flat=False)),
        ("checks", checks_table(found)),
        ("steps", steps_table(found)),
    ):
        if table.rows:
            yield line()
            yield line(title, "head")
            yield from _table(table, width)
        if title.startswith("growth") and (
            flat := [trend_name(item) for item in found.trends if item.verdict == "flat"]
        ):
            yield from wrapped(f"flat: {', '.join(flat)}", width, first="  ", rest="    ", style="dim")
    for note in notes_of(found):
        yield from wrapped(note, width, first="note: ", rest="  ")
    if out is not None:
        yield line()
        yield from wrapped(f"report in {out / REPORT}; every request in {out / RECORDS}", width, rest="  ")


def _failure(found: Experiment, width: int) -> Iterator[Line]:
    failed = found.failure
    assert failed is not None
    where = f", {failed.stage}" if failed.stage else ""
    yield from wrapped(
        f"{failed.classification or 'not classified'} in {failed.step.value}{where}, {utc_text(failed.at_s)}",
        width,
        first="  ",
        rest="    ",
    )
    for text in failed.evidence:
        yield from wrapped(text, width, first="    ", rest="      ", style="dim")
    for text in failed.remedies:
        yield from wrapped(text, width, first="  try: ", rest="    ")


def _table(table: Table, width: int) -> Iterator[Line]:
    """Columns of what is in any row, without those that a narrow page has no room for; words that are long stand below their row."""
    kept = without_empty(table)
    places = [place for place, head in enumerate(kept.heads) if head not in _BELOW]
    below = [place for place, head in enumerate(kept.heads) if head in _BELOW]
    cells = [[shortened(cell, _LONGEST) for cell in row] for row in (kept.heads, *kept.rows)]
    for number in (*kept.drop, None):
        wide = sum(max(len(row[place]) for row in cells) for place in places)
        if number is None or wide + 2 * len(places) <= width:
            break
        if number in places:
            places.remove(number)
    rows = [[f"  {row[places[0]]}", *(row[place] for place in places[1:])] for row in cells]
    right = [number for number, place in enumerate(places) if place not in kept.texts]
    lines = columns(rows, right=right, styles=("dim", *kept.styles))
    yield lines[0]
    for row, shown in zip(kept.rows, lines[1:], strict=True):
        yield shown
        for place in below:
            if row[place]:
                yield from wrapped(row[place], width, first="      ", rest="        ", style="dim")
