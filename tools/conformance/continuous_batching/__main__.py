"""Ask transformers' own paged cache how it sizes itself, and compare it with the rules here.

    python -m tools.conformance.continuous_batching --venv DIR [--make VERSION] [--record FILE] [--table FILE]

DIR is a virtual environment that has transformers and torch (the CPU's is enough); --make creates it with uv.
Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.conformance.compare import Field
from tools.conformance.continuous_batching.cases import Case, cases
from tools.conformance.continuous_batching.compare import compare

from vramledger.errors import VramledgerError

PROBE = Path(__file__).resolve().with_name("probe.py")
TORCH = "torch==2.13.0+cpu"
LIMIT_S = 1800


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--make", metavar="VERSION", help="create the environment first")
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--table", type=Path, help="write Markdown here")
    parser.add_argument("--record", type=Path, help="write the library's answers here, for the tests")
    options = parser.parse_args()
    if options.make:
        make(options.venv, options.make, options.uv)
    version = installed(options.venv)
    asked = [case for case in cases(version) if options.only in case["name"]]
    answers = ask(options.venv, asked)
    if options.record:
        kept = [answers[case["name"]] for case in asked if "error" not in answers[case["name"]]]
        lines = [json.dumps(item, separators=(",", ":")) for item in kept]
        options.record.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [(case, *judge(case, answers[case["name"]], version)) for case in asked]
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(markdown(version, rows), encoding="utf-8")
    wrong = 0
    for case, fields, refusal in rows:
        different = [field for field in fields if not field.equal]
        wrong += bool(different)
        word = "not built" if refusal else "DIFFERS" if different else "equal"
        print(f"{word:10}  {case['name']}  {refusal}"[:200])
        for field in different:
            print(f"    {field.name}\n      plan          {field.ours}\n      transformers  {field.theirs}")
    compared = sum(not refusal for *_, refusal in rows)
    print(f"transformers {version}: {compared} of {len(rows)} compared, {wrong} differ")
    return 1 if wrong or not compared else 0


def judge(case: Case, answer: dict[str, Any], version: str) -> tuple[list[Field], str]:
    """The figures of both sides, or why the library gives none."""
    if "error" in answer:
        return [], answer["error"].replace("\n", " ")[:160]
    try:
        return compare(case, answer, version), ""
    except VramledgerError as error:
        return [Field(name="plan", ours=f"refused: {error}", theirs="built")], ""


def make(venv: Path, version: str, uv: str) -> None:
    """A virtual environment with transformers of `version` and torch for the CPU, which may have to be given to uv
    by its own settings (UV_FIND_LINKS)."""
    subprocess.run([uv, "venv", "--quiet", "--python", "3.11", str(venv)], check=True)
    packages = [TORCH, f"transformers=={version}", "accelerate"]
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python_of(venv)), *packages], check=True)


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def installed(venv: Path) -> str:
    asked = "from importlib.metadata import version; print(version('transformers'))"
    done = subprocess.run([str(python_of(venv)), "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ask(venv: Path, asked: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """The library's answer to each case by name."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "cases.json"
        path.write_text(json.dumps(list(asked)), encoding="utf-8")
        done = subprocess.run(
            [str(python_of(venv)), str(PROBE), str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_S,
            env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
            check=False,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {line["name"]: line for line in lines if "name" in line}
    return {case["name"]: found.get(case["name"], {"error": "the process ended"}) for case in asked}


def markdown(version: str, rows: Sequence[tuple[Case, list[Field], str]]) -> str:
    """A table of figures compared and equal."""
    names = list(dict.fromkeys(field.name for _, fields, _ in rows for field in fields))
    out = f"## transformers {version}\n\n| figure | compared | equal |\n| --- | ---: | ---: |\n"
    for name in names:
        found = [field for _, fields, _ in rows for field in fields if field.name == name]
        out += f"| {name} | {len(found)} | {sum(field.equal for field in found)} |\n"
    return out


if __name__ == "__main__":
    sys.exit(main())
