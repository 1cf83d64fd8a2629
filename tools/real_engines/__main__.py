"""Release tiny models on real engines, and say where prediction and measurement part.

    python -m tools.real_engines --engine vllm --venv DIR [--make VERSION --uv UV] [--version 0.32.0] [--only WORD]
                                 [--work DIR] [--table FILE] [--record DIR]

DIR is a virtual environment with the engine (vLLM's CPU build; --make creates it with uv); llama.cpp needs none where
llama-server is on the path or xllamacpp is installed. --record keeps what the tests replay: each outcome, and the lines of
each log that say something. With --from DIR the tables of recorded outcomes are written and nothing is run. Ends with 1 where
something is outside, a request failed, or KV was not shown to return.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tools.conformance.engine import make
from tools.real_engines.cases import Case, cases
from tools.real_engines.recording import record, recorded
from tools.real_engines.running import Outcome, environment, run_case
from tools.real_engines.tables import markdown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=["vllm", "llamacpp"])
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--make", metavar="VERSION", help="create the environment first (vllm)")
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--version", default="", help="the version to plan for; the newest known without it")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--exactly", action="store_true", help="the case of just that name")
    parser.add_argument("--work", type=Path, default=Path("build/real-engines"))
    parser.add_argument("--table", type=Path, help="write Markdown here")
    parser.add_argument("--record", type=Path, help="keep outcomes and log lines here, for the tests")
    parser.add_argument(
        "--from", dest="recorded", type=Path, help="write the tables of what was recorded here"
    )
    options = parser.parse_args()
    if options.recorded is not None:
        found = list(recorded(options.recorded))
    else:
        if options.engine is None:
            parser.error("--engine or --from is needed")
        if options.make:
            make(options.venv, options.make, options.uv)
        chosen = [
            case
            for case in cases(options.engine)
            if (case.name == options.only if options.exactly else options.only in case.name)
        ]
        found = [_run(case, options) for case in chosen]
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(markdown(found), encoding="utf-8")
    wrong = [item for item in found if item.wrong]
    for item in wrong:
        print(f"{item.case.engine} {item.case.name}: {item.wrong}")
    print(f"{len(found)} releases, {len(wrong)} not as they should be")
    return 1 if wrong else 0


def _run(case: Case, options: argparse.Namespace) -> Outcome:
    folder = options.work / f"{case.engine} {case.name}".replace(", ", "-").replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    done = run_case(case, options.version, folder, environment(options.venv, options.work))
    ready = "-" if done.ready_s is None else f"{done.ready_s:.0f} s"
    print(f"{done.wrong or 'as it should be':40}  ready after {ready:>5}  {case.name}", flush=True)
    if options.record:
        record(options.record, done, folder / "out" / "engine.log")
    return done


if __name__ == "__main__":
    sys.exit(main())
