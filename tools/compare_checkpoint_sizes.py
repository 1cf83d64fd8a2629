"""Compare the stored bytes that a config alone gives with the checkpoint's own size, worst difference first.

    python tools/compare_checkpoint_sizes.py [--quantized] [--time] [MODEL_ID ...]

`total` is the index file's metadata.total_size; `files` the weight files' sizes, headers included. Models without a
size are only built and sized, which shows what cannot be read (`--time` prints how long that took).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from vramledger.errors import VramledgerError
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.quantization import apply, read_quantization

ROOT = Path(os.environ.get("VRAMLEDGER_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "models"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quantized", action="store_true", help="also size quantised models without a known size"
    )
    parser.add_argument("--time", action="store_true")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    rows: list[tuple[float, str]] = []
    for entry in json.loads((ROOT / "index.json").read_text()):
        expected = entry.get("total_size") or entry.get("checkpoint_file_bytes")
        model_id = entry["id"]
        if options.ids and model_id not in options.ids:
            continue
        if not options.ids and not expected and not (options.quantized and entry.get("quant")):
            continue
        folder = ROOT / model_id.replace("/", "__")
        config = Config(json.loads((folder / "config.json").read_text()), "config.json")
        beside = folder / "hf_quant_config.json"
        modelopt = Config(json.loads(beside.read_text()), beside.name) if beside.exists() else None
        try:
            model = describe(config, model_id)
            started = time.perf_counter()
            scheme = read_quantization(config, model.dtype, modelopt)
            stored = apply(model, scheme)
            took_ms = (time.perf_counter() - started) * 1000
        except VramledgerError as error:
            rows.append((-1.0, f"ERROR {model_id}: {str(error)[:150]}"))
            continue
        ours = sum(item.stored_bytes for item in stored)
        what = "total" if entry.get("total_size") else "files"
        summary = (scheme.summary if scheme else model.dtype.value) + (
            f" [{took_ms:.2f} ms]" if options.time else ""
        )
        if expected:
            off = ours - expected
            rows.append(
                (
                    abs(off) / expected,
                    f"{off:+15d} {off / expected:+.6%} {model_id}: {ours} {what} {expected}; {summary}",
                )
            )
        else:
            per = ours * 8 / max(1, model.parameter_counts().total + model.parameter_counts().draft)
            rows.append(
                (
                    0.0,
                    f"{'':15} {per:8.3f} bits/weight {model_id}: {ours}; published {entry.get('params_published')}; {summary}",
                )
            )
    for _, line in sorted(rows, key=lambda row: -row[0]):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
