"""The example of a workflow, its policy and its commands, run as the runner would."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from experiment_values import experiment, point
from five_kinds import DENSE, write_config
from vramledger.cli import main
from vramledger.cli.experiment_command import command as experiment_command
from vramledger.experiment.journal import experiment_bytes
from vramledger.experiment.result import Experiment
from vramledger.manifest.gate_policy import read_policy
from vramledger.report.schema import schema_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WORKFLOW = EXAMPLES / "github-workflows" / "release-gate.yml"
POLICY = EXAMPLES / "release-policy.toml"


def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return found


def commands() -> dict[str, str]:
    """What each step runs, by its name."""
    steps = workflow()["jobs"]["gate"]["steps"]
    return {step["name"]: step["run"] for step in steps if "run" in step}


@pytest.fixture
def checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """What the workflow's head says lies in the repository, and a model."""
    (tmp_path / "release").mkdir()
    write_config(tmp_path / "model", DENSE)
    assert main(["plan", str(tmp_path / "model"), "--device", "H200-141GB", "--json"]) == 0
    (tmp_path / "release" / "plan.json").write_text(capsys.readouterr().out)
    shutil.copy(EXAMPLES / "facts.json", tmp_path / "release" / "facts.json")
    shutil.copy(POLICY, tmp_path / "release" / "policy.toml")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    shim = bin_folder / "vramledger"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vramledger "$@"\n')
    shim.chmod(0o755)
    return tmp_path


def step(checkout: Path, name: str) -> subprocess.CompletedProcess[str]:
    """One step of the workflow in the shell that GitHub uses where none is named."""
    environment = {
        **os.environ,
        **workflow()["env"],
        "PATH": f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "GITHUB_STEP_SUMMARY": str(checkout / "summary.md"),
    }
    return subprocess.run(
        ["bash", "-e", "-c", commands()[name]],
        cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def measured(checkout: Path, found: Experiment) -> None:
    """The folder that the experiment leaves, from what it found; the engine itself is no matter of the workflow's other steps."""
    folder = checkout / "experiment"
    folder.mkdir(exist_ok=True)
    (folder / "experiment.json").write_bytes(experiment_bytes(found))
    asked = [
        "manifest", str(checkout / "model"), "--plan", str(checkout / "release" / "plan.json"),
        "--engine-revision", workflow()["env"]["ENGINE_REVISION"], "--facts", str(checkout / "release" / "facts.json"),
        "--experiment", str(folder), "-o", str(folder / "manifest.json"), "--force",
    ]  # fmt: skip
    assert main(asked) == 0


def test_it_asks_for_no_more_than_to_read_and_runs_on_one_s_own_machine() -> None:
    found = workflow()
    assert found["permissions"] == {"contents": "read"}
    assert "self-hosted" in found["jobs"]["gate"]["runs-on"]
    # Unquoted, YAML 1.1 reads this key as true.
    assert "pull_request" in found["on"]


def test_its_experiment_is_one_that_the_command_understands() -> None:
    text = commands()["The experiment on the live engine"]
    env = workflow()["env"]
    for name, value in env.items():
        text = text.replace(f'"${name}"', shlex.quote(value))
    words = shlex.split(text)
    assert words[:2] == ["vramledger", "experiment"]
    context = experiment_command.make_context("experiment", words[2:])
    assert context.params["launch"] == env["SERVE"]
    assert str(context.params["manifest"]) == "planned.json"


def test_a_first_release_a_good_one_and_a_bad_one(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = step(checkout, "Plan, declared and revised, before anything is started")
    assert planned.returncode == 0, planned.stderr
    assert json.loads((checkout / "planned.json").read_text())["kind"] == "manifest"

    good = replace(experiment(), point=point(low_per_s=3.9, high_per_s=4.1))
    policy = (checkout / "release" / "policy.toml").read_text()
    # Nobody measured this instance's weights; a start-up log would.
    loose = policy.replace('policy = "release"', 'policy = "warn"')
    (checkout / "release" / "policy.toml").write_text(loose)

    measured(checkout, good)
    first = step(checkout, "The gate")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "there is no OLD to compare with" in first.stdout

    shutil.copy(checkout / "experiment" / "manifest.json", checkout / "release" / "manifest.json")
    bad = replace(good, point=point(per_s=2.2, low_per_s=2.1, high_per_s=2.3))
    measured(checkout, bad)
    second = step(checkout, "The gate")
    assert second.returncode == 18, second.stdout + second.stderr
    assert "::error file=experiment/manifest.json,title=vramledger gate%3A capacity" in second.stdout

    summary = step(checkout, "What was found")
    assert summary.returncode == 0, summary.stderr
    assert "serves 2.2 requests/s well" in (checkout / "summary.md").read_text()

    (checkout / "release" / "policy.toml").write_text(policy)
    strict = step(checkout, "The gate")
    assert strict.returncode == 18
    assert "disk-and-runtime" in strict.stdout


def test_the_example_of_a_policy_is_one() -> None:
    found = read_policy(POLICY.read_bytes(), POLICY.name)
    assert found.audit is not None
    assert found.experiment is not None


def test_the_manifest_s_schema_knows_the_experiment() -> None:
    assert "ExperimentResult" in schema_of("manifest")["$defs"]
