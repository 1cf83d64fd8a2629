"""Measure predictions against every reported start-up.

    python -m tools.accuracy [--data DIR] [--json FILE] [--table FILE] [--worst N]

DIR has `groundtruth/reported-startups.jsonl` and `models/` (or `models.json.gz`). Prints, field by field,
count, median and 95th percentile of the absolute error, median and mean error, the share inside our interval and its
half-width, then the worst cases, then what could not be run and why.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from msgspec.structs import asdict
from tools.accuracy.cases import ModelSet, newest_by_date, prepare, read_cases, why_nothing
from tools.accuracy.fields import FIELDS, Comparison, compare
from tools.accuracy.parameters import markdown as parameter_section
from tools.accuracy.parameters import parameter_rows, report
from tools.accuracy.rows import problem
from tools.accuracy.tables import markdown, summary_rows, text

from vramledger.errors import VramledgerError

HERE = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--json", type=Path, help="write every comparison here")
    parser.add_argument("--table", type=Path, help="write the summary as Markdown here")
    parser.add_argument("--worst", type=int, default=10, help="worst cases shown a field")
    options = parser.parse_args()
    rows = read_cases(options.data, "vllm")
    models = ModelSet(options.data)
    history = newest_by_date(rows)
    comparisons: list[Comparison] = []
    refused: list[tuple[str, str]] = []
    for row in rows:
        malformed = problem(row)
        if malformed:
            refused.append((str(row.get("id")), f"malformed case: {malformed}"))
            continue
        try:
            case = prepare(row, models, history)
            if case.contradiction:
                refused.append((row["id"], f"the log contradicts itself: {case.contradiction}"))
                continue
            found = compare(case)
        except KeyError as error:
            refused.append((row["id"], str(error.args[0])))
            continue
        except VramledgerError as error:
            refused.append((row["id"], f"{error.code}: {error}"))
            continue
        comparisons += found
        if not found:
            refused.append((row["id"], why_nothing(case)))
    print(text(comparisons, refused, len(rows), worst=options.worst))
    parameters = parameter_rows(models)
    print()
    print(report(parameters))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps(
                {
                    "cases": len(rows),
                    "summary": summary_rows(comparisons),
                    "comparisons": [asdict(item) for item in comparisons],
                    "not_run": [{"id": case, "why": why} for case, why in refused],
                },
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
    if options.table:
        options.table.write_text(
            markdown(comparisons, refused, len(rows), worst=options.worst) + parameter_section(parameters),
            encoding="utf-8",
        )
    return 0 if any(item.field in FIELDS for item in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
