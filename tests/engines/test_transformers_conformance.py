"""The paged cache against what transformers' own classes computed, recorded by
`python -m tools.conformance.continuous_batching --record`.

Six releases, at least one for each generation of its rules; only the query of the device's memory was stood in for.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools.conformance.continuous_batching.__main__ import judge
from tools.conformance.continuous_batching.cases import cases

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("5.0.0", "5.5.0", "5.6.0", "5.12.0", "5.17.0", "5.23.0")


@cache
def answers(version: str) -> dict[str, dict[str, Any]]:
    path = RECORDED / f"transformers-{version}.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line for line in lines}


CASES = [
    pytest.param(version, case, id=f"{version}: {case['name']}")
    for version in VERSIONS
    for case in cases(version)
    if case["name"] in answers(version)
]


@pytest.mark.parametrize(("version", "case"), CASES)
def test_the_cache_is_what_the_library_computed(version: str, case: dict[str, Any]) -> None:
    fields, refusal = judge(case, answers(version)[case["name"]], version)
    assert not refusal
    assert fields
    assert [field for field in fields if not field.equal] == []


def test_enough_was_recorded() -> None:
    assert len(CASES) > 880
    assert {version for version, *_ in (case.values for case in CASES)} == set(VERSIONS)
    assert sum("refused" in answers("5.23.0")[name] for name in answers("5.23.0")) > 20
