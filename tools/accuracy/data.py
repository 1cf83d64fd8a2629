"""The ground truth and the configs it names, from a data folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.pack_data import reference

from vramledger.models.sources.load import Source

OWN_FACTS = Path(__file__).resolve().parents[2] / "data/groundtruth/facts.jsonl"


class ModelSet:
    """Configs by folder name, from `models/` of a data folder or from its packed copy `models.json.gz`."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "models"
        packed = data / "models.json.gz"
        self._reconstructed: frozenset[str] = frozenset()
        index = self._folder / "index.json"
        if index.is_file():
            entries = json.loads(index.read_text(encoding="utf-8"))
            self._reconstructed = frozenset(
                entry["id"].replace("/", "__") for entry in entries if entry.get("reconstructed")
            )
        self._references: dict[str, dict[str, Any]] = {}
        self._packed: dict[str, dict[str, Any]] = {}
        if not self._folder.is_dir() and packed.is_file():
            with gzip.open(packed, "rt", encoding="utf-8") as handle:
                content = json.load(handle)
            self._packed = content["models"]
            self._reconstructed = frozenset(content["reconstructed"])
            self._references = content["params"]
        elif index.is_file():
            counts = json.loads((self._folder / "param-counts.json").read_text(encoding="utf-8"))
            self._references = {
                entry["id"].replace("/", "__"): reference(entry, counts.get(entry["id"], {}))
                for entry in entries
            }

    def is_reconstructed(self, name: str) -> bool:
        """Whether a config was written from published dimensions: its quantisation's ignore list is a guess."""
        return name in self._reconstructed

    def reference(self, name: str) -> Mapping[str, Any]:
        """What is known of a model's size from elsewhere: params, caveat, published, note, total_size, source."""
        return self._references.get(name, {})

    def names(self) -> tuple[str, ...]:
        if self._packed:
            return tuple(sorted(self._packed))
        return tuple(sorted(path.parent.name for path in self._folder.glob("*/config.json")))

    def source(self, name: str) -> Source:
        """The config files of one model, without weights or headers. Raises KeyError for an unknown name."""
        files = self._packed.get(name) if self._packed else self._read(name)
        if files is None or "config.json" not in files:
            raise KeyError(f"no config in a folder {name}")
        return Source(
            id=name.replace("__", "/", 1),
            where=f"{name}/config.json",
            config=files["config.json"],
            quant_configs={key: value for key, value in files.items() if key != "config.json"},
            side_configs={},
            table=None,
            index=None,
            gguf=None,
            disk_bytes=None,
            disk_evidence=None,
            files=tuple(files),
        )

    def _read(self, name: str) -> dict[str, Any] | None:
        folder = self._folder / name
        if not (folder / "config.json").is_file():
            return None
        wanted = ("config.json", "hf_quant_config.json")
        return {
            path.name: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.json"))
            if path.name in wanted
        }


def read_cases(data: Path, engine: str) -> list[Mapping[str, Any]]:
    """Every case of one engine, with what the project's `facts.jsonl` and one beside the cases add to their inputs."""
    path = data / "groundtruth" / "reported-startups.jsonl"
    rows = _read_lines(path)
    files = [file for file in (OWN_FACTS, path.with_name("facts.jsonl")) if file.is_file()]
    added = {fact["id"]: fact for file in files for fact in _read_lines(file)}
    return [_with_facts(row, added.get(row.get("id", ""), {})) for row in rows if row.get("engine") == engine]


def _read_lines(path: Path) -> list[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as handle:
        return [json.loads(line) for line in handle if line.strip()]


def _with_facts(row: Mapping[str, Any], fact: Mapping[str, Any]) -> Mapping[str, Any]:
    """A case with inputs that its source page states and the collection lacks; printed figures stay."""
    row = {key: _stated(value) for key, value in row.items()}
    version = row.get("engine_version") or fact.get("engine_version")
    return {**row, "engine_version": version, "flags": {**fact.get("flags", {}), **row.get("flags", {})}}


def _stated(value: Any) -> Any:
    """A table without the keys that say nothing (null)."""
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if item is not None}
    return value
