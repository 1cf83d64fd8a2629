"""Plans against what vLLM's own classes computed, recorded by `python -m tools.conformance --record`.

The files hold the answers of two releases: from their CPU platform and from their CUDA platform with an H100's
properties. Each case is planned anew here and compared figure by figure.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools.conformance.__main__ import HERE, is_known, judge
from tools.conformance.cases import cases, lora_cases

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("0.27.1", "0.32.0")
DEVICES = ("", "H100")
KNOWN = json.loads((HERE / "known-differences.json").read_text(encoding="utf-8"))
KV_FIGURES = {
    "num_blocks", "bytes per block", "groups", "tokens", "max concurrency", "max_model_len", "refused",
    "needed GiB", "available GiB", "estimated length", "max_num_batched_tokens", "max_num_seqs",
    "enable_prefix_caching",
}  # fmt: skip


@cache
def answers(version: str, device: str) -> dict[str, dict[str, Any]]:
    path = RECORDED / f"vllm-{version}-{device.lower() or 'cpu'}.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line for line in lines}


CASES = [
    pytest.param(version, device, case, id=f"{version} {device or 'cpu'}: {case['name']}")
    for version in VERSIONS
    for device in DEVICES
    for case in cases(device)
    if case["name"] in answers(version, device)
]


@pytest.mark.parametrize(("version", "device", "case"), CASES)
def test_the_plan_is_what_the_engine_computed(version: str, device: str, case: dict[str, Any]) -> None:
    fields, refusal = judge(case, answers(version, device)[case["name"]], version, device)
    assert not refusal
    assert [f for f in fields if not f.equal and not is_known(KNOWN, case["kind"], f.name)] == []


@cache
def slots(version: str) -> dict[str, dict[str, Any]]:
    lines = (RECORDED / f"vllm-{version}-lora.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["name"]: line for line in map(json.loads, lines)}


LORA_CASES = [
    pytest.param(version, case, id=f"{version}: {case['name']}")
    for version in VERSIONS
    for case in lora_cases()
    if case["name"] in slots(version)
]


@pytest.mark.parametrize(("version", "case"), LORA_CASES)
def test_slots_of_adapters_are_those_the_engine_made(version: str, case: dict[str, Any]) -> None:
    fields, refusal = judge(case, slots(version)[case["name"]], version, "H100")
    assert not refusal
    assert [f for f in fields if not f.equal and not is_known(KNOWN, case["kind"], f.name)] == []


def test_enough_was_recorded() -> None:
    assert len(CASES) > 900
    assert len({case.values[2]["kind"] for case in CASES}) > 30  # type: ignore[index]
    assert len(LORA_CASES) > 140


def test_no_figure_of_the_cache_is_among_the_known_differences() -> None:
    assert all(KV_FIGURES.isdisjoint(figures) for figures in KNOWN.values())


def test_known_differences_still_differ() -> None:
    """A rule that was repaired leaves the list."""
    found = {
        (case["kind"], field.name.partition(" of stage")[0])
        for version in VERSIONS
        for device in DEVICES
        for case in cases(device)
        if case["kind"] in KNOWN and case["name"] in answers(version, device)
        for field in judge(case, answers(version, device)[case["name"]], version, device)[0]
        if not field.equal
    } | {
        (case["kind"], field.name.partition(" of stage")[0])
        for version in VERSIONS
        for case in lora_cases()
        if case["kind"] in KNOWN and case["name"] in slots(version)
        for field in judge(case, slots(version)[case["name"]], version, "H100")[0]
        if not field.equal
    }
    assert {(kind, name) for kind, figures in KNOWN.items() for name in figures} <= found
