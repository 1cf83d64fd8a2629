"""The tables: one line a case, and every figure of it beneath."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tools.real_engines.running import Figure, Outcome

from vramledger.units import MIB

POOL = ("tokens", "blocks")
HEAD = """# Releases on real engines

Made by `make real-engines`: `vramledger release` plans a model, starts the engine named, asks it, measures and reconciles. Models with
a kind's name have random weights in that kind's layout and are made on the spot; SmolLM2-135M is real. Everything runs on CPU.
A figure is *inside* where what was measured lies in the predicted range, *untold* where the engine does not tell it.
"""


def markdown(outcomes: Sequence[Outcome]) -> str:
    """One section an engine."""
    lines = [HEAD]
    for engine, version in dict.fromkeys((item.case.engine, item.version) for item in outcomes):
        chosen = [item for item in outcomes if (item.case.engine, item.version) == (engine, version)]
        lines += [f"## {engine} {version}", "", *_summary(chosen), "", *_figures(chosen)]
    return "\n".join(lines).rstrip() + "\n"


def _summary(outcomes: Iterable[Outcome]) -> Iterator[str]:
    yield "| model | flags | inside | outside | untold | pool predicted = printed | KV returned |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for item in outcomes:
        flags = f"`{' '.join(item.case.flags)}`"
        if not item.figures:
            word = "ended and was diagnosed, as expected" if not item.wrong else f"**{item.wrong}**"
            yield f"| {item.case.name} | {flags} | | | | {word} | |"
            continue
        count = Counter(figure.standing for figure in _predicted(item))
        pool = ", ".join(_pool(figure) for figure in item.figures if figure.name in POOL)
        back = {True: "yes", False: "**no**", None: "not shown"}[item.returned]
        yield (
            f"| {item.case.name} | {flags} | {count['inside']} | {count['outside']} | {count['untold']} | {pool} | {back} |"
        )


def _predicted(item: Outcome) -> list[Figure]:
    """Without the processes that no plan speaks of."""
    return [figure for figure in item.figures if figure.predicted is not None]


def _pool(figure: Figure) -> str:
    if figure.measured is None or figure.predicted is None:
        return f"{figure.name} not printed"
    (low, high), (least, most) = figure.predicted, figure.measured
    if low == high == least == most:
        return f"{_plain(low)} {figure.name}"
    return f"{_span(figure.predicted, '')} / {_span(figure.measured, '')} {figure.name}"


def _figures(outcomes: Iterable[Outcome]) -> Iterator[str]:
    for item in outcomes:
        if not item.figures:
            continue
        yield f"### {item.case.name}"
        yield ""
        yield "| figure | predicted | measured | |"
        yield "| --- | --- | --- | --- |"
        for figure in _predicted(item):
            # What processes hold differs from run to run and machine to machine.
            varies = figure.section == "host" and figure.measured is not None
            measured = "differs by machine" if varies else _span(figure.measured, figure.unit)
            yield f"| {figure.name} | {_span(figure.predicted, figure.unit)} | {measured} | {figure.standing} |"
        yield ""


def _span(span: tuple[float, float] | None, unit: str) -> str:
    if span is None:
        return "-"
    low, high = (f"{value / MIB:,.2f}" if unit == "bytes" else _plain(value) for value in span)
    suffix = " MiB" if unit == "bytes" else ""
    return f"{low}{suffix}" if low == high else f"{low} to {high}{suffix}"


def _plain(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.3f}"
