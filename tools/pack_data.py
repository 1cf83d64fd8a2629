"""Pack published model configs and reported start-ups for the repository, the same bytes from the same input.

    python tools/pack_data.py --shared DIR [--out data]

DIR has `models/` (a folder with config.json for each model, index.json, param-counts.json) and
`groundtruth/reported-startups.jsonl` and `oom-reports.jsonl`. Writes `models.json.gz`, both collections and
`groundtruth/README.md`, which names the sources; `oom-messages-extra.jsonl` beside them is this project's own.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIGS = ("config.json", "hf_quant_config.json")
STARTUPS = "reported-startups.jsonl"
FAILURES = "oom-reports.jsonl"
OWN_FAILURES = "oom-messages-extra.jsonl"

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

## Reported memory failures

`oom-reports.jsonl` has {failures} failures of memory from public issue threads, one JSON object a line: engine, version,
flags, the key lines reduced to their format (`messages`; `...` stands where a part was not visible), the numbers in
them (`parsed`: `*_mib` in MiB and so on), what the failure was (`class`, and `class_also_accepted` where a report lies
on a boundary), how sure that is, what helped. Facts only, with a link each (`source.url`). Keys without a value are left
out. Diagnoses and readings of messages are judged on it; no rule is fitted to one.

`oom-messages-extra.jsonl` has {extra} more of other threads and versions, collected for this project in the same way:
`parsed` was written from the texts by hand, and `class` is null where the thread does not establish it ({classed} have
one).

| class | `oom-reports.jsonl` | `oom-messages-extra.jsonl` |
| --- | ---: | ---: |
{classes}
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
    cases = json_lines(options.shared / "groundtruth" / STARTUPS)
    failures = json_lines(options.shared / "groundtruth" / FAILURES)
    ground = options.out / "groundtruth"
    ground.mkdir(parents=True, exist_ok=True)
    (options.out / "models.json.gz").write_bytes(squeezed(packed))
    (ground / STARTUPS).write_text(text, encoding="utf-8")
    (ground / FAILURES).write_text("".join(map(compact, failures)), encoding="utf-8")
    own = ground / OWN_FAILURES
    extra = json_lines(own) if own.is_file() else []
    (ground / "README.md").write_text(
        readme(cases, packed, counts["_meta"]["transformers"], failures, extra), encoding="utf-8"
    )


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def compact(row: Mapping[str, Any]) -> str:
    """One line without keys that say nothing."""
    said = {key: value for key, value in row.items() if value not in (None, "") or key == "class"}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")) + "\n"


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


def readme(
    cases: Sequence[Mapping[str, Any]],
    packed: Mapping[str, Any],
    transformers: str,
    failures: Sequence[Mapping[str, Any]],
    extra: Sequence[Mapping[str, Any]],
) -> str:
    engines = Counter(case["engine"] for case in cases)
    sources = Counter(
        case["source"].get("repo") or case["source"].get("title") or case["source"]["kind"] for case in cases
    )
    return README.format(
        cases=len(cases),
        engines=rows(engines),
        sources=rows(sources),
        models=len(packed["models"]),
        transformers=transformers,
        reconstructed=len(packed["reconstructed"]),
        failures=len(failures),
        extra=len(extra),
        classed=sum(row["class"] is not None for row in extra),
        classes=class_rows(failures, extra),
    )


def class_rows(*collections: Sequence[Mapping[str, Any]]) -> str:
    counts = [Counter(row["class"] or "not established" for row in rows) for rows in collections]
    names = sorted(set().union(*counts), key=lambda name: (name == "not established", name))
    return "\n".join(f"| {name} | {' | '.join(str(count[name]) for count in counts)} |" for name in names)


def rows(counts: Counter[str]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(f"| {name} | {count} |" for name, count in ordered)


if __name__ == "__main__":
    main()
