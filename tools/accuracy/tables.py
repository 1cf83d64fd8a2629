"""The accuracy table, for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from tools.accuracy.fields import FIELDS, Comparison, percentile

COLUMNS = (
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


def summary_rows(comparisons: Sequence[Comparison]) -> list[dict[str, Cell]]:
    """One row a field; `inside %` and `half-width %` are None where the field has no interval."""
    rows: list[dict[str, Cell]] = []
    for field in FIELDS:
        found = [item for item in comparisons if item.field == field]
        if not found:
            continue
        errors = [abs(item.error_percent) for item in found]
        ranged = [item for item in found if item.inside is not None]
        rows.append(
            {
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


def worst_of(comparisons: Sequence[Comparison], field: str, count: int) -> list[Comparison]:
    found = [item for item in comparisons if item.field == field and item.error_percent]
    return sorted(found, key=lambda item: -abs(item.error_percent))[:count]


def text(
    comparisons: Sequence[Comparison], refused: Sequence[tuple[str, str]], cases: int, *, worst: int
) -> str:
    """Worst cases first, then the summary, then what could not be run."""
    lines = []
    for field in FIELDS:
        for item in worst_of(comparisons, field, worst):
            interval = "" if item.inside is None else "  inside" if item.inside else "  OUTSIDE"
            lines.append(
                f"{field:40} {item.error_percent:+8.2f} %  printed {item.printed:g} predicted {item.predicted:g} "
                f"[{item.low:g} .. {item.high:g}]{interval}  {item.case} {item.note}"
            )
    lines.append("")
    lines.append("  ".join(f"{name:>16}" if index else f"{name:40}" for index, name in enumerate(COLUMNS)))
    for row in summary_rows(comparisons):
        lines.append(
            "  ".join(
                f"{_shown(row[name]):>16}" if index else f"{row[name]!s:40}"
                for index, name in enumerate(COLUMNS)
            )
        )
    run = len({item.case for item in comparisons})
    lines.append("")
    lines.append(f"{run} of {cases} cases compared; {len(refused)} not:")
    lines += [f"  {case}: {why}" for case, why in refused]
    return "\n".join(lines)


def markdown(
    comparisons: Sequence[Comparison], refused: Sequence[tuple[str, str]], cases: int, *, worst: int
) -> str:
    """The page of the documentation."""
    out = [
        "# Accuracy",
        "",
        "Predictions against what vLLM printed at start-up on real machines, over every case of",
        "`data/groundtruth/reported-startups.jsonl`. Made by `make accuracy`; do not edit.",
        "",
        "An error is 0 where the printed value lies within what its own rounding allows. *inside* is the share of",
        "printed values in our low..high interval, *half-width* that interval's median half-width. *median error* and",
        "*mean error* keep their sign; one printed value near zero weighs as much in a mean as all others together.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + " --- |" * len(COLUMNS),
    ]
    for row in summary_rows(comparisons):
        out.append("| " + " | ".join(_shown(row[name]) for name in COLUMNS) + " |")
    out += [
        "",
        "## Worst cases",
        "",
        "| field | error % | printed | predicted | case |",
        "| --- | --- | --- | --- | --- |",
    ]
    for field in FIELDS:
        for item in worst_of(comparisons, field, worst):
            out.append(
                f"| {field} | {item.error_percent:+.2f} | {item.printed:g} | {item.predicted:.6g} | {item.case} |"
            )
    run = len({item.case for item in comparisons})
    out += ["", "## Not compared", "", f"{run} of {cases} cases were compared. The others:", ""]
    out += [f"- `{case}`: {why}" for case, why in refused]
    return "\n".join(out) + "\n"
