"""Ask llama.cpp itself what it would hold, and compare it with the plan.

    python -m tools.llamacpp_agreement [--python FILE] [--only WORD] [--table FILE] [--record FILE]

Header-only GGUF files with the shapes of real models are written one at a time (holes, a few kilobytes on disk) and
measured by the engine's own no-allocation run: no GPU, no weights. The engine is the `xllamacpp` package of this
interpreter, or of the one that --python names. Ends with 1 where model, KV or
state buffers differ by a byte or compute buffers by more than 3 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tools.accuracy.data import ModelSet
from tools.llamacpp_agreement.cases import cases
from tools.llamacpp_agreement.compare import Outcome, ask, compare
from tools.llamacpp_agreement.tables import markdown

from vramledger.engines.llamacpp.version import NEWEST
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source

HERE = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the package")
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--table", type=Path, help="write Markdown here")
    parser.add_argument("--record", type=Path, help="write the engine's answers here, for the tests")
    options = parser.parse_args()
    models = ModelSet(options.data)
    asked = [case for case in cases() if options.only in case.name]
    outcomes: list[Outcome] = []
    recorded = []
    checkpoints: dict[str, Checkpoint] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in asked:
            if case.model not in checkpoints:
                checkpoints[case.model] = checkpoint_from_source(models.source(case.model))
            checkpoint = checkpoints[case.model]
            answer = ask(options.python, case, checkpoint, Path(folder))
            recorded.append({"case": case.name, "engine": str(NEWEST), **answer})
            outcome = compare(case, checkpoint, answer)
            outcomes.append(outcome)
            word = "DIFFERS" if outcome.problem else "equal"
            print(f"{word:8} {100 * outcome.compute_error:+6.2f}%  {case.name}  {outcome.problem}"[:300])
    if options.record:
        options.record.write_text("".join(json.dumps(item) + "\n" for item in recorded), encoding="utf-8")
    if options.table:
        options.table.write_text(markdown(outcomes), encoding="utf-8")
    wrong = sum(bool(item.problem) for item in outcomes)
    exact = sum(
        item.engine is not None and item.plan.compute_bytes == item.engine.compute_bytes for item in outcomes
    )
    print(f"llama.cpp {NEWEST}: {len(outcomes)} cases, {wrong} differ; compute equal to the byte in {exact}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
