"""The accuracy table, for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from tools.accuracy.comparison import Comparison, EngineCases, Result, percentile

COLUMNS = (
    "engine",
    "field",
    "count",
    "median abs error %",
    "p95 abs error %",
    "median error %",
    "mean error %",
    "inside %",
    "half-width %",
)
Cell = str | int | float | None


class EngineResult(Struct, frozen=True, kw_only=True):
    """One engine's part of the table; `count` is how many cases there are of it."""

    cases: EngineCases
    count: int
    result: Result

    def of(self, field: str) -> list[Comparison]:
        return [item for item in self.result.comparisons if item.field == field]

    def worst(self, field: str, count: int) -> list[Comparison]:
        """The largest errors first; none that is 0."""
        found = [item for item in self.of(field) if item.error_percent]
        return sorted(found, key=lambda item: -abs(item.error_percent))[:count]

    @property
    def compared(self) -> str:
        run = len({item.case for item in self.result.comparisons})
        return f"{run} of {self.count} {self.cases.ENGINE} cases"


def summary_rows(results: Sequence[EngineResult]) -> list[dict[str, Cell]]:
    """One row an engine and field; `inside %` and `half-width %` are None where the field has no interval."""
    rows: list[dict[str, Cell]] = []
    for engine in results:
        for field in engine.cases.FIELDS:
            found = engine.of(field)
            if not found:
                continue
            errors = [abs(item.error_percent) for item in found]
            ranged = [item for item in found if item.inside is not None]
            rows.append(
                {
                    "engine": engine.cases.ENGINE,
                    "field": field,
                    "count": len(found),
                    "median abs error %": round(percentile(errors, 0.5), 3),
                    "p95 abs error %": round(percentile(errors, 0.95), 3),
                    "median error %": round(percentile([item.error_percent for item in found], 0.5), 3),
                    "mean error %": round(sum(item.error_percent for item in found) / len(found), 3),
                    "inside %": round(100 * sum(bool(item.inside) for item in ranged) / len(ranged), 1)
                    if ranged
                    else None,
                    "half-width %": round(percentile([item.half_width_percent for item in ranged], 0.5), 3)
                    if ranged
                    else None,
                }
            )
    return rows


def _shown(cell: Cell) -> str:
    """A cell; nothing where there is no figure."""
    return "" if cell is None else str(cell)


def text(results: Sequence[EngineResult], *, worst: int) -> str:
    """Worst cases first, then the summary, then what could not be run."""
    lines = []
    for engine in results:
        for field in engine.cases.FIELDS:
            for item in engine.worst(field, worst):
                interval = "" if item.inside is None else "  inside" if item.inside else "  OUTSIDE"
                lines.append(
                    f"{item.engine:12} {field:44} {item.error_percent:+8.2f} %  printed {item.printed:g} "
                    f"predicted {item.predicted:g} [{item.low:g} .. {item.high:g}]{interval}  {item.case} {item.note}"
                )
    lines.append("")
    widths = [12, 44, *(16 for _ in COLUMNS[2:])]
    rows = [[_shown(row[name]) for name in COLUMNS] for row in summary_rows(results)]
    for cells in (list(COLUMNS), *rows):
        lines.append(
            "  ".join(
                f"{cell:{width}}" if index < 2 else f"{cell:>{width}}"
                for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
        )
    for engine in results:
        lines += ["", f"{engine.compared} compared; left out, cases or single figures, each with its reason:"]
        lines += [f"  {case}: {why}" for case, why in engine.result.refused]
    return "\n".join(lines)


def markdown(results: Sequence[EngineResult], *, worst: int) -> str:
    """The page of the documentation."""
    out = [
        "# Accuracy",
        "",
        "Predictions against what engines printed at start-up on real machines, over every case of",
        "`data/groundtruth/reported-startups.jsonl`. Made by `make accuracy`; do not edit.",
        "",
        "An error is 0 where the printed value lies within what its own rounding allows. *inside* is the share of",
        "printed values in our low..high interval, *half-width* that interval's median half-width. *median error* and",
        "*mean error* keep their sign; one printed value near zero weighs as much in a mean as all others together.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + " --- |" * len(COLUMNS),
    ]
    for row in summary_rows(results):
        out.append("| " + " | ".join(_shown(row[name]) for name in COLUMNS) + " |")
    out += [
        "",
        "## Worst cases",
        "",
        "| engine | field | error % | printed | predicted | case |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for engine in results:
        for field in engine.cases.FIELDS:
            for item in engine.worst(field, worst):
                out.append(
                    f"| {item.engine} | {field} | {item.error_percent:+.2f} | {item.printed:g} | {item.predicted:.6g} "
                    f"| {item.case} |"
                )
    out += ["", "## Not compared"]
    for engine in results:
        out += [
            "",
            f"{engine.compared} were compared. Left out, cases or single figures, each with its reason:",
            "",
        ]
        out += [f"- `{case}`: {why}" for case, why in engine.result.refused]
    return "\n".join(out) + "\n"
