"""Compare our tensor tables with the reference tables of `models/` (see VRAMLEDGER_SHARED), model by model.

    python tools/compare_tensors.py [--types llama,qwen2] [MODEL_ID ...]

Prints one line a model: OK, or the difference in elements and which shapes are on one side only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path

from vramledger.errors import VramledgerError
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.tensors import Component

ROOT = Path(os.environ.get("VRAMLEDGER_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "models"


def shapes(tensors: list[tuple[tuple[int, ...], int]]) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for shape, repeat in tensors:
        counts[tuple(sorted(size for size in shape if size != 1))] += repeat
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", default="", help="only these model types, comma separated")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    wanted = set(filter(None, options.types.split(",")))
    counts = json.loads((ROOT / "param-counts.json").read_text())
    tables = json.loads((ROOT / "tensor-tables.json").read_text())
    index = {entry["id"]: entry for entry in json.loads((ROOT / "index.json").read_text())}
    bad = ok = 0
    for model_id, entry in sorted(index.items()):
        if (options.ids and model_id not in options.ids) or (wanted and entry["model_type"] not in wanted):
            continue
        path = ROOT / model_id.replace("/", "__") / "config.json"
        reference = counts.get(model_id, {})
        label = f"{model_id} [{entry['model_type']}]"
        try:
            model = describe(Config(json.loads(path.read_text()), "config.json"), model_id)
        except VramledgerError as error:
            bad += 1
            print(f"ERROR {label}: {error}")
            continue
        ours = model.parameter_counts()
        expected = reference.get("params")
        published = entry.get("params_published")
        extra = f" published={published} ({entry.get('params_published_note')}) ours+draft={ours.total + ours.draft}"
        if reference.get("caveat") or reference.get("mapped"):
            extra += f" [{reference.get('mapped')} {reference.get('caveat')}]"
        if ours.total == expected:
            ok += 1
            print(f"OK    {label}: {ours.total}" + (extra if ours.draft or reference.get("caveat") else ""))
            continue
        bad += 1
        print(
            f"DIFF  {label}: ours {ours.total} expected {expected} off {ours.total - (expected or 0):+d}{extra}"
        )
        if model_id in tables:
            mine = shapes(
                [
                    (t.shape, t.repetitions)
                    for t in model.tensors
                    if t.parameter and t.component is not Component.DRAFT
                ]
            )
            theirs = shapes([(tuple(s), n) for _, s, _, n in tables[model_id]["params"]])
            print("      only ours:  ", dict(mine - theirs))
            print("      only theirs:", dict(theirs - mine))
    print(f"{ok} equal, {bad} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
