"""What a plan says its engine prints, measured as a log and put beside that plan, is inside everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from log_support import observed
from support import GEMMA_3_27B, GPT_OSS_20B, H100, LLAMA_3_1_8B, checkpoint
from vramledger.engines import find_engine, find_log
from vramledger.reconciliation.measured_plan import reconciled_plan
from vramledger.reconciliation.reconcile import reconcile
from vramledger.reconciliation.result import Standing

VERSIONS = {
    "vllm": ("0.6.6", "0.8.5", "0.10.2", "0.14.0", "0.20.0", "0.27.1", "0.33.0"),
    "sglang": ("0.3.0", "0.4.6.post5", "0.5.9", "0.5.23"),
    "llamacpp": ("b5285", "b6700", "b11549"),
    "tensorrt-llm": ("0.13.0", "1.0.0", "1.3.0"),
}
MODELS = {"dense": LLAMA_3_1_8B, "windowed": GEMMA_3_27B, "mixture": GPT_OSS_20B}
CASES = [
    *(("dense", engine, version) for engine, versions in VERSIONS.items() for version in versions),
    *(("windowed", engine, version) for engine in ("vllm", "llamacpp") for version in VERSIONS[engine]),
    *(("mixture", engine, VERSIONS[engine][-1]) for engine in ("vllm", "sglang")),
]


@pytest.mark.parametrize(("model", "engine", "version"), CASES)
def test_a_plan_agrees_with_its_own_prints(model: str, engine: str, version: str) -> None:
    config: dict[str, Any] = MODELS[model]
    plan = find_engine(engine)[0].plan_with(checkpoint(config), H100, version=version, values={})
    log = find_log(engine)
    assert log is not None
    run = log.measured(observed(engine, plan.printed))
    found = reconcile(plan, run)
    assert [line.name for line in found.lines if line.standing is Standing.OUTSIDE] == []
    assert found.standing is Standing.INSIDE
    assert found.differences == ()
    made = reconciled_plan(plan, run)
    assert any(entry.evidence.kind.value == "measured" for rank in made.ranks for entry in rank.entries)
