"""Pack published model configs and reported start-ups for the repository, the same bytes from the same input.

    python tools/pack_data.py --shared DIR [--out data]

DIR has `models/` (a folder with config.json for each model, index.json, param-counts.json) and
`groundtruth/reported-startups.jsonl`. Writes `models.json.gz`, `groundtruth/reported-startups.jsonl` and
`groundtruth/README.md`, which names the sources.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CONFIGS = ("config.json", "hf_quant_config.json")
STARTUPS = "reported-startups.jsonl"

README = """# Reported start-ups

`reported-startups.jsonl` has {cases} start-ups of inference engines on real machines, one JSON object a line: the model,
the flags, the card, and the memory figures that the engine printed. They are facts from public issue threads, logs in
public repositories and write-ups; no text is copied, and none was measured by this project. Predictions are compared
with them (`make accuracy`); no rule and no constant is fitted to one.

Keys end in their unit; engines that print "GB" for 2^30 bytes are recorded as `_gib`. A figure is one rank's unless its
key says otherwise. `engine_version` and `date` are null where they were not stated, any other field is then absent;
`config_dir` names the model in `../models.json.gz`; `surprises` and `notes` say what does not add up in a case.

| engine | cases |
| --- | ---: |
{engines}

## Sources

Each case has its own `source` with a link. By repository or title:

| source | cases |
| --- | ---: |
{sources}

## Models

`../models.json.gz` holds `config.json` and `hf_quant_config.json` of {models} published models as published, with
nothing left out, where each was found (`source`), and for comparison the number of parameters (`params`: the classes of
transformers {transformers} instantiated without memory; `published`: elements of the published files). {reconstructed}
of the configs were written from published dimensions, because no original was found; they are listed as `reconstructed`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "data")
    options = parser.parse_args()
    models = options.shared / "models"
    index = json.loads((models / "index.json").read_text(encoding="utf-8"))
    counts = json.loads((models / "param-counts.json").read_text(encoding="utf-8"))
    packed = pack(models, index, counts)
    text = (options.shared / "groundtruth" / STARTUPS).read_text(encoding="utf-8")
    cases = [json.loads(line) for line in text.splitlines() if line.strip()]
    ground = options.out / "groundtruth"
    ground.mkdir(parents=True, exist_ok=True)
    (options.out / "models.json.gz").write_bytes(squeezed(packed))
    (ground / STARTUPS).write_text(text, encoding="utf-8")
    (ground / "README.md").write_text(
        readme(cases, packed, counts["_meta"]["transformers"]), encoding="utf-8"
    )


def pack(
    folder: Path, index: Iterable[Mapping[str, Any]], counts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Configs, which of them are reconstructed, and reference counts, by folder name."""
    entries = {entry["id"].replace("/", "__"): entry for entry in index}
    models: dict[str, Any] = {}
    params: dict[str, Any] = {}
    for path in sorted(folder.glob("*/config.json")):
        name = path.parent.name
        models[name] = {
            file: json.loads((path.parent / file).read_text(encoding="utf-8"))
            for file in CONFIGS
            if (path.parent / file).is_file()
        }
        params[name] = reference(entries.get(name, {}), counts.get(name.replace("__", "/", 1), {}))
    reconstructed = sorted(name for name in models if entries.get(name, {}).get("reconstructed"))
    return {"models": models, "reconstructed": reconstructed, "params": params}


def reference(entry: Mapping[str, Any], counted: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of one model's size; keys without a value are left out."""
    stated = {
        "params": counted.get("params"),
        "caveat": counted.get("caveat"),
        "published": entry.get("params_published"),
        "note": entry.get("params_published_note"),
        "total_size": entry.get("total_size"),
        "source": entry.get("provenance"),
    }
    return {key: value for key, value in stated.items() if value is not None}


def squeezed(content: Mapping[str, Any]) -> bytes:
    """JSON, compressed without a time or a name."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(text.encode())
    return buffer.getvalue()


def readme(cases: list[Mapping[str, Any]], packed: Mapping[str, Any], transformers: str) -> str:
    engines = Counter(case["engine"] for case in cases)
    sources = Counter(
        case["source"].get("repo") or case["source"].get("title") or case["source"]["kind"] for case in cases
    )
    return README.format(
        cases=len(cases),
        engines=rows(engines),
        sources=rows(sources),
        models=len(packed["models"]),
        reconstructed=len(packed["reconstructed"]),
        transformers=transformers,
    )


def rows(counts: Counter[str]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(f"| {name} | {count} |" for name, count in ordered)


if __name__ == "__main__":
    main()
