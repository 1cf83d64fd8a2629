"""Defaults and pools against what SGLang's own code computed, recorded by `python -m tools.conformance.sglang --record`.

The code of eleven releases was run on stand-ins for torch and the device; every answer is computed anew here.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tools.conformance.sglang.compare import differences

from vramledger.engines.sglang.version import READ

RECORDED = Path(__file__).parent / "recorded" / "sglang.jsonl.gz"
LINES: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()
]
VERSIONS = sorted({line["version"] for line in LINES})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["defaults", "pools"])
def test_every_figure_is_the_releases_own(version: str, kind: str) -> None:
    asked = [line for line in LINES if (line["version"], line["kind"]) == (version, kind)]
    assert [(line["question"], what) for line in asked if (what := differences(line))] == []


def test_enough_was_recorded() -> None:
    counts = Counter(line["kind"] for line in LINES)
    assert counts["defaults"] > 3500
    assert counts["pools"] > 400
    assert len(VERSIONS) > 10
    assert set(VERSIONS) <= set(READ)
    assert any(line["answer"].get("refused") for line in LINES)
    assert {
        line["question"]["model"] for line in LINES if line["kind"] == "pools" and line["answer"].get("slots")
    }
    assert {
        line["question"]["model"]
        for line in LINES
        if line["kind"] == "pools" and line["answer"].get("swa_tokens")
    }


def test_a_changed_figure_is_found() -> None:
    line = next(line for line in LINES if line["kind"] == "pools" and not line["answer"]["refused"])
    wrong = {**line, "answer": {**line["answer"], "tokens": line["answer"]["tokens"] + 1}}
    assert list(differences(wrong)) == ["tokens"]
