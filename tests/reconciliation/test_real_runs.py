"""Plans of the models that real engines ran, beside what these printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from five_kinds import write_config
from small_models import TINY_LLAMA
from vramledger.cli.app import run

RECORDED = Path(__file__).with_name("recorded")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "tiny-llama", TINY_LLAMA).parent)


def test_llamacpp(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights, cache and compute buffer of a start-up, all within the prints' rounding."""
    log = str(RECORDED / "llamacpp-tiny.log")
    code = run(["reconcile", "--log", log, "--model", model, "--device", "cpu:24105MiB", "--engine", "llamacpp", "--ftype", "F16"])  # fmt: skip
    page = capsys.readouterr().out
    assert code == 0, page
    for name in (
        "CPU_Mapped model buffer",
        "CPU KV buffer",
        "CPU compute buffer",
        "CPU output buffer",
        "tokens",
    ):
        (line,) = (line for line in page.splitlines() if line.startswith(f"  {name} "))
        assert line.endswith("inside")
    assert "settings that differ" not in page


def test_sglang(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The pool is the planned one; what the device lacks was taken before anything was loaded, by others."""
    log = str(RECORDED / "sglang-cpu.log")
    assert run(["reconcile", "--log", log, "--model", model, "--device", "cpu:24105MiB"]) == 10
    page = capsys.readouterr().out
    inside = [line for line in page.splitlines() if line.endswith("inside")]
    assert {line.split()[0] for line in inside} >= {"weights", "KV", "pool", "blocks", "tokens"}
    assert "settings that differ" not in page
    outside = [line for line in page.splitlines() if line.endswith("OUTSIDE")]
    assert outside
    assert all(line.startswith("  device free") for line in outside)
    assert "100 % other processes on the device: others hold 1.37 GiB of the device" in page
    assert "graph_pool" not in page


VLLM = Path(__file__).parents[1] / "engines" / "recorded" / "logs"


@pytest.mark.parametrize(
    ("log", "tokens"),
    [
        ("vllm-0.27.1-eager.log", "8,192"),
        ("vllm-0.32.0-pressure.log", "8,192"),
        ("vllm-0.32.0-tp2.log", "16,384"),
        ("vllm-0.32.0-compile.log", "1,048,576"),  # stated in the environment, no flag
    ],
)
def test_vllm_with_a_stated_pool(
    model: str, log: str, tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pool, tokens and concurrency as printed, to the token."""
    assert run(["reconcile", "--log", str(VLLM / log), "--model", model]) == 0
    page = capsys.readouterr().out
    (line,) = (line for line in page.splitlines() if line.startswith("  tokens "))
    assert line.split() == ["tokens", tokens, tokens, "0", "inside"]
    assert "settings that differ" not in page


def test_vllm_with_a_profiled_pool(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the profile found resident stands in the budget, which then leaves what was printed."""
    assert run(["reconcile", "--log", str(VLLM / "vllm-0.32.0-auto.log"), "--model", model, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    printed = next(line["measured"] for line in found["lines"] if line["name"] == "tokens")
    budget = found["budget"]
    assert budget["measured_terms"] == ["resident before the pool"]
    assert budget["calculated_terms"] == []
    assert budget["tokens"]["low"] <= printed["expected"] <= budget["tokens"]["high"]
    planned = next(line["predicted"] for line in found["lines"] if line["name"] == "tokens")
    width = budget["tokens"]["high"] - budget["tokens"]["low"]
    assert width < (planned["high"] - planned["low"]) / 5
