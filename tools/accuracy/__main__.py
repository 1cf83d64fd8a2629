"""Measure predictions against every reported start-up.

    python -m tools.accuracy [--data DIR] [--engine NAME] [--json FILE] [--table FILE] [--worst N]

DIR has `groundtruth/reported-startups.jsonl` and `models/` (or `models.json.gz`). Prints the worst cases, then by engine
and field the count, median and 95th percentile of the absolute error, median and mean error, the share inside our
interval and its half-width, then what could not be run and why. Where DIR has `groundtruth/oom-reports.jsonl`, the numbers
read from the messages in it follow, and the classes that a diagnosis names.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec
from msgspec.structs import asdict
from tools.accuracy.data import ModelSet, read_cases
from tools.accuracy.diagnosis import class_files
from tools.accuracy.diagnosis import markdown as class_section
from tools.accuracy.diagnosis import text as class_text
from tools.accuracy.engines import ENGINES
from tools.accuracy.messages import markdown as message_section
from tools.accuracy.messages import message_files
from tools.accuracy.messages import text as message_text
from tools.accuracy.parameters import markdown as parameter_section
from tools.accuracy.parameters import parameter_rows, report
from tools.accuracy.tables import EngineResult, markdown, summary_rows, text

HERE = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--engine", choices=[item.ENGINE for item in ENGINES], help="only this one's cases")
    parser.add_argument("--json", type=Path, help="write every comparison here")
    parser.add_argument("--table", type=Path, help="write the summary as Markdown here")
    parser.add_argument("--worst", type=int, default=10, help="worst cases shown a field")
    options = parser.parse_args()
    models = ModelSet(options.data)
    results = []
    for item in ENGINES:
        if options.engine in (None, item.ENGINE):
            rows = read_cases(options.data, item.ENGINE)
            results.append(EngineResult(cases=item, count=len(rows), result=item.run(rows, models)))
    print(text(results, worst=options.worst))
    parameters = parameter_rows(models)
    print()
    print(report(parameters))
    messages = message_files(options.data)
    if messages:
        print()
        print(message_text(messages, worst=options.worst))
    classes = class_files(options.data)
    for name, judged in classes.items():
        print()
        print(class_text(judged, name=name, worst=options.worst))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps(
                {
                    "cases": {item.cases.ENGINE: item.count for item in results},
                    "summary": summary_rows(results),
                    "comparisons": [
                        asdict(comparison) for item in results for comparison in item.result.comparisons
                    ],
                    "not_run": [
                        {"engine": item.cases.ENGINE, "id": case, "why": why}
                        for item in results
                        for case, why in item.result.refused
                    ],
                    "messages": msgspec.to_builtins(messages),
                    "classes": {name: msgspec.to_builtins(judged) for name, judged in classes.items()},
                },
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
    if options.table:
        options.table.write_text(
            markdown(results, worst=options.worst)
            + parameter_section(parameters)
            + message_section(messages)
            + class_section(classes),
            encoding="utf-8",
        )
    return 0 if all(item.result.comparisons for item in results) else 1


if __name__ == "__main__":
    sys.exit(main())
