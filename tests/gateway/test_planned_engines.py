"""A plan or a manifest in the place of what an engine does not say: its pool, its lengths, what fills its devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramledger.cli import main
from vramledger.cli.gateway_plan import planned_from
from vramledger.errors import InputError
from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.config_sections import UpstreamSection
from vramledger.gateway.live_engines import given_of

MODEL = str(Path(__file__).parents[2] / "examples" / "Llama-3.1-8B-Instruct")
FLAGS = ("--device", "H100-80GB", "--max-model-len", "8K", "--max-num-seqs", "64", "--no-headers")


def test_what_a_plan_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", MODEL, *FLAGS, "--json"]) == 0
    text = capsys.readouterr().out
    told = json.loads(text)
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    upstream = UpstreamSection(url="http://a", max_running=16)
    planned = planned_from(GatewayConfig(plan=str(plan), upstream=(upstream,)))
    assert planned is not None
    assert planned.given.engine == "vllm"
    assert planned.given.layout is not None
    assert planned.given.layout.num_blocks == told["kv_pool"]["num_blocks"]["expected"]
    assert (planned.given.max_model_len, planned.given.max_running) == (8192, 64)
    assert planned.memory.weights_bytes is not None
    assert planned.memory.weights_bytes > 15 * 10**9
    [known] = given_of(GatewayConfig(upstream=(upstream,)), planned.given)
    assert (known.max_running, known.layout) == (
        16,
        planned.given.layout,
    )  # the configuration goes before the plan


def test_what_a_manifest_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", MODEL, *FLAGS, "--json"]) == 0
    plan, manifest = tmp_path / "plan.json", tmp_path / "m.json"
    plan.write_text(capsys.readouterr().out)
    assert main(["manifest", "--plan", str(plan), "--allow-unpinned", "-o", str(manifest)]) == 0
    by_plan = planned_from(GatewayConfig(plan=str(plan)))
    by_manifest = planned_from(GatewayConfig(manifest=str(manifest)))
    assert by_plan == by_manifest is not None
    with pytest.raises(InputError, match="one of"):
        planned_from(GatewayConfig(plan=str(plan), manifest=str(manifest)))
    assert planned_from(GatewayConfig()) is None
