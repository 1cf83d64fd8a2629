"""docs/experiments.md out of the experiments' own files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from vramledger.experiment.journal import read_experiment
from vramledger.experiment.result import Experiment
from vramledger.report.experiment_tables import (
    Table,
    checks_table,
    forecast_table,
    stages_table,
    steps_table,
    trends_table,
    without_empty,
)
from vramledger.report.experiment_words import conditions_of, doubts, head_facts, median_error, verdict_text
from vramledger.report.quantity_words import figures, percent

_HEAD = """# Capacity experiments on real engines

This page is written by `make experiment-shown` from the `experiment.json` of each run. Every section is one run of
`vramledger experiment`, from an engine that was not there to an operating point with its interval: llama.cpp's server (SmolLM2-135M on
one thread, 8 slots that share their cells) and vLLM's CPU build (a small model with random weights, 64 blocks of 128 tokens). Straight
means that the command started the engine, which shows its memory from before its weights and lets it be restarted and replaced;
through the gateway that `--target` was a running gateway before a running engine.

These engines are small and slow so that anyone can run them again; what is shown is the method. Forecasts were made before their stage was sent,
from earlier stages only.
"""
_WAYS = {"straight": "straight", "gateway": "through the gateway"}
_FORETOLD = frozenset(
    {"TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "latency p99", "goodput", "KV usage peak"}
)
"""Of some twenty figures of a stage those that decide."""
_HIDDEN = frozenset({"asked at", "started as", "gateway"})


def page(paths: Sequence[Path]) -> str:
    """The page's text. A path ends in ENGINE/WAY/experiment.json."""
    found = [(_title(path), read_experiment(path)) for path in paths]
    return "\n".join(_lines(found)) + "\n"


def _title(path: Path) -> str:
    way, engine = path.parent.name, path.parent.parent.name
    return f"{engine}, {_WAYS.get(way, way)}"


def _lines(found: Sequence[tuple[str, Experiment]]) -> Iterator[str]:
    yield _HEAD
    yield "| run | holds, requests/s | interval | missed at | binds | forecasts off by (median) | steady stretch | verdict |"
    yield "| --- | ---: | --- | ---: | --- | ---: | ---: | --- |"
    for title, one in found:
        yield _summary(title, one)
    for title, one in found:
        yield f"\n## {title}\n"
        yield from _section(one)


def _summary(title: str, one: Experiment) -> str:
    point, error = one.point, median_error(one.forecast_errors)
    cells = [title]
    if point is None:
        cells += ["-", "-", "-", "-"]
    else:
        beyond = "none was" if point.beyond_per_s is None else figures(point.beyond_per_s)
        cells += [
            figures(point.per_s),
            f"{figures(point.low_per_s)} to {figures(point.high_per_s)} ({percent(point.confidence)})",
            beyond,
            point.binds,
        ]
    cells += [
        "-" if error is None else percent(error),
        f"{one.plan.steady_s:g} s",
        "failed" if one.failure is not None else ("holds" if point is not None and point.per_s > 0 else "-"),
    ]
    return _row(cells)


def _section(one: Experiment) -> Iterator[str]:
    yield _named(one, verdict_text(one))
    for reason in doubts(one):
        yield f"- {_named(one, reason)}"
    yield "\n| | | |\n| --- | --- | --- |"
    for fact in head_facts(one):
        yield _row([fact.name, fact.value, _named(one, fact.note)])
    yield "\nConditions:\n"
    for name, value in conditions_of(one):
        if name not in _HIDDEN:
            yield f"- {name}: {_named(one, value)}"
    for text in one.conditions:
        yield f"- {_named(one, text)}"
    for title, table in (
        ("Load", stages_table(one)),
        ("Foretold and measured", _decisive(forecast_table(one))),
        ("Growth over the steady stretch", trends_table(one)),
        ("Checks", checks_table(one)),
        ("Steps", steps_table(one)),
    ):
        if table.rows:
            yield f"\n{title}:\n"
            yield from _table(one, without_empty(table))
    for text in one.notes:
        yield f"\n{_named(one, text)}"


def _decisive(table: Table) -> Table:
    return replace(table, rows=tuple(row for row in table.rows if row[1] in _FORETOLD))


def _table(one: Experiment, table: Table) -> Iterator[str]:
    yield _row(table.heads)
    yield _row(["---" if place in table.texts else "---:" for place in range(len(table.heads))])
    for row in table.rows:
        yield _row([_named(one, cell) for cell in row])


def _named(one: Experiment, text: str) -> str:
    """Where the model and the programs lay on the machine of the run is nobody's concern."""
    words = sorted({*one.target.launched, one.target.model}, key=len, reverse=True)
    for word in words:
        if os.sep in word and not word.startswith("http"):
            text = text.replace(word, Path(word).name)
    return text


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
