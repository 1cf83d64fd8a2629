"""The page of results."""

from __future__ import annotations

from collections.abc import Sequence

from tools.conformance.cases import Case
from tools.conformance.compare import Field

Row = tuple[Case, list[Field], str]
SHOWN = ("num_blocks", "tokens", "max concurrency", "bytes per block", "estimated length", "weight bytes")


def markdown(version: str, device: str, rows: Sequence[Row]) -> str:
    """A summary by figure, then a line a case."""
    title = f"## vLLM {version} on {device or 'CPU'}\n\n"
    names = list(dict.fromkeys(_plain(field.name) for _, fields, _ in rows for field in fields))
    summary = "| figure | compared | equal |\n| --- | ---: | ---: |\n"
    for name in names:
        found = [field for _, fields, _ in rows for field in fields if _plain(field.name) == name]
        summary += f"| {name} | {len(found)} | {sum(field.equal for field in found)} |\n"
    head = "| case | " + " | ".join(SHOWN) + " | equal? |\n| --- " + "| ---: " * len(SHOWN) + "| --- |\n"
    return title + summary + "\n" + head + "".join(_line(row) for row in rows)


def _plain(name: str) -> str:
    return name.partition(" of stage")[0]


def _line(row: Row) -> str:
    case, fields, refusal = row
    if refusal:
        return f"| {case['name']} |{' |' * len(SHOWN)} vLLM does not build it: {_cell(refusal[:90])} |\n"
    cells = []
    for name in SHOWN:
        found = [field for field in fields if _plain(field.name) == name]
        cells.append("; ".join(_both(field) for field in found))
    different = [field.name for field in fields if not field.equal]
    verdict = "yes" if not different else "no: " + ", ".join(different)
    return f"| {case['name']} | {' | '.join(map(_cell, cells))} | {verdict} |\n"


def _both(field: Field) -> str:
    return field.ours if field.equal else f"{field.ours} / {field.theirs}"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
