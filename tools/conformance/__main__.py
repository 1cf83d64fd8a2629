"""Ask vLLM's own classes what they compute, and compare it with the plan.

    python -m tools.conformance --venv DIR [--make VERSION] [--device H100] [--only WORD]
                                [--table FILE] [--record FILE] [--configs DIR] [--lora]

DIR is a virtual environment that has vLLM's CPU build; --make creates it with uv. Without --device the CPU
platform is asked, with one (A100, H100, B200) its CUDA platform. --configs compares every config.json below a
folder instead of the small ones kept here, on 1 and 4 ranks, unquantised on the CPU; --lora compares the slots that
adapters get. Ends with 1 where
anything differs that is not listed in known-differences.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.conformance.cases import Case, cases, lora_cases
from tools.conformance.compare import DEVICES, Field, compare
from tools.conformance.engine import ask, make
from tools.conformance.tables import markdown

from vramledger.errors import VramledgerError

HERE = Path(__file__).resolve().parent
GIB = 2**30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--make", metavar="VERSION", help="create the environment first")
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--device", default="", choices=list(DEVICES))
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--configs", type=Path, help="a folder of folders with config.json")
    parser.add_argument("--table", type=Path, help="write Markdown here")
    parser.add_argument("--record", type=Path, help="write vLLM's answers here, for the tests")
    parser.add_argument("--lora", action="store_true", help="slots of adapters instead of weights and KV")
    options = parser.parse_args()
    if options.make:
        make(options.venv, options.make, options.uv)
    small = lora_cases() if options.lora else cases(options.device)
    asked = _real(options.configs, options.device) if options.configs else small
    asked = [case for case in asked if options.only in case["name"]]
    version, answers = ask(options.venv, [_for_probe(case) for case in asked], options.device)
    if options.record:
        _record(options.record, asked, answers)
    rows = [(case, *judge(case, answers[case["name"]], version, options.device)) for case in asked]
    if options.table:
        options.table.write_text(markdown(version, options.device, rows), encoding="utf-8")
    known = json.loads((HERE / "known-differences.json").read_text(encoding="utf-8"))
    wrong = 0
    for case, fields, refusal in rows:
        different = [field for field in fields if not field.equal]
        new = [field for field in different if not is_known(known, case["kind"], field.name)]
        wrong += bool(new)
        word = (
            "refused by vLLM"
            if refusal
            else "DIFFERS"
            if new
            else "differs as known"
            if different
            else "equal"
        )
        print(f"{word:16}  {case['name']}  {refusal}"[:200])
        for field in different:
            print(f"    {field.name}\n      plan  {field.ours}\n      vLLM  {field.theirs}")
    compared = sum(not refusal for *_, refusal in rows)
    print(f"vLLM {version}, {options.device or 'CPU'}: {compared} of {len(rows)} compared, {wrong} differ")
    return 1 if wrong else 0


def judge(case: Case, answer: dict[str, Any], version: str, device: str) -> tuple[list[Field], str]:
    """The figures of both sides, or why there are none."""
    if "error" in answer:
        return [], answer["error"].replace("\n", " ")[:160]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(case.get("folder") or scratch)
        if "config" in case:
            (folder / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        try:
            return compare(case, answer, folder, version, device), ""
        except VramledgerError as error:
            return [Field(name="plan", ours=f"refused: {error}", theirs="built")], ""


def is_known(known: dict[str, dict[str, str]], kind: str, name: str) -> bool:
    return name.partition(" of stage")[0] in known.get(kind, {})


def _for_probe(case: Case) -> Case:
    return {**case, "kv_memory_bytes": case["pool_bytes"]}


def _real(folder: Path, device: str) -> list[Case]:
    """One case a config and number of ranks; without a device the checkpoint's quantisation is left out."""
    out: list[Case] = []
    for path in sorted(folder.glob("*/config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        if "auto_map" in config:
            continue
        if not device:
            config.pop("quantization_config", None)
        out += [
            {
                "name": f"{path.parent.name}, tp {tp}",
                "kind": path.parent.name,
                "config": config,
                "tp": tp,
                "pp": 1,
                "pool_bytes": 40 * GIB + 12345,
                "args": {},
                "stated": True,
            }
            for tp in (1, 4)
        ]
    return out


def _record(path: Path, asked: list[Case], answers: dict[str, dict[str, Any]]) -> None:
    """vLLM's answers without tensor lists, one line each."""
    lines = []
    for case in asked:
        answer = {**answers[case["name"]]}
        if "error" in answer:
            continue
        if "weights" in answer:
            answer["weights"] = [
                {name: held[name] for name in ("parameters", "rope")} for held in answer["weights"]
            ]
        lines.append(json.dumps(answer, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
