"""The command on a real engine: ended in the middle and gone on with, refused where it is another experiment, and told of an engine's end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llamacpp_server import llamacpp_server, needs_llamacpp
from small_models import served_model_file
from vramledger.telemetry.probes.proc import is_alive

LONGEST_S = 240.0
SERVER = ("-c", "512", "-np", "2", "--kv-unified", "--metrics", "--slots", "--props")
PLAN = """
stage_s = 2
stage_requests = 2
most_stages = 1
start_per_s = 1.0
steady_s = {steady_s}
steady_load = 1.0
drain_s = 20
goodput = 0.01
interval_s = 0.2
skip = ["mixed", "prefix", "disturbed", "restart"]
[slo]
ttft_ms = 1000000
tpot_ms = 1000000
"""


def started(out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vramledger", "experiment", "-o", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
    return process.returncode, out, err


def journal(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "experiment.json").read_bytes())
    return found


def wait_until(out: Path, step: str, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Until the step has begun; what was found by then."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end and process.poll() is None:
        if (out / "experiment.json").exists():
            found = journal(out)
            if any(one["step"] == step and one["state"] == "open" for one in found["steps"]):
                return found
        time.sleep(0.05)
    raise AssertionError(f"{step} was not reached: {ended(process)}")


def plan_file(folder: Path, steady_s: int) -> str:
    path = folder / f"plan-{steady_s}.toml"
    path.write_text(PLAN.format(steady_s=steady_s), encoding="utf-8")
    return str(path)


def states(found: dict[str, Any]) -> dict[str, str]:
    return {one["step"]: one["state"] for one in found["steps"]}


@pytest.mark.timeout(900)
@needs_llamacpp
def test_what_is_ended_in_the_middle_is_gone_on_with(tmp_path: Path) -> None:
    out, plan = tmp_path / "found", plan_file(tmp_path, 4)
    with llamacpp_server(tmp_path, *SERVER) as port:
        target = ("--target", f"http://127.0.0.1:{port}", "--plan", plan)
        process = started(out, *target)
        before = wait_until(out, "steady", process)
        process.send_signal(signal.SIGTERM)
        code, _, said = ended(process)
        assert code == 128 + signal.SIGTERM
        assert "the same command goes on" in said
        assert "[8/10] steady; about" in said
        assert "not finished" in (out / "report.html").read_text(encoding="utf-8")
        assert states(before)["short"] == "done"

        code, _, said = ended(started(out, *target, "--seed", "7"))
        assert code == 2
        assert "seed 0 is now 7" in said

        code, text, said = ended(started(out, *target, "--json"))
        assert code == 0, said
    after = json.loads(text)
    assert states(after) == {
        "load": "skipped",
        "warm-up": "done",
        "pool": "done",
        "short": "done",
        "mixed": "skipped",
        "prefix": "skipped",
        "disturbed": "skipped",
        "steady": "done",
        "restart": "skipped",
        "operating-point": "done",
    }
    assert after["pool"]["engine_tokens"] is None  # the server does not say whether its slots share
    kept = next(stage for stage in before["stages"] if stage["name"] == "short-1")
    assert kept in after["stages"]
    assert {stage["name"]: stage["is_whole"] for stage in after["stages"]} == {
        "short-1": True,
        "steady": True,
    }
    assert after["point"]["per_s"] > 0
    assert after["verdict"].startswith("holds ")
    assert all((out / stage["records"]).exists() for stage in after["stages"])
    assert (out / "report.html").exists()
    assert (out / "measurement.json").exists()

    # All is done: the engine is gone by now, and nobody needs it.
    page = tmp_path / "page.html"
    code, text, said = ended(started(out, *target, "--json", "--html", str(page)))
    assert code == 0
    assert "was over before" in said
    assert json.loads(text) == after
    assert page.read_bytes() == (out / "report.html").read_bytes()
    code, _, said = ended(started(out, *target, "--html", plan))
    assert code == 2
    assert "--html names the source" in said


@pytest.mark.timeout(900)
@needs_llamacpp
def test_the_engines_end_is_a_result(tmp_path: Path) -> None:
    out = tmp_path / "found"
    server = [
        sys.executable,
        "-m",
        "vramledger.release.xllamacpp_server",
        "-m",
        "{model}",
        "--host",
        "{host}",
    ]
    launch = " ".join([*server, "--port", "{port}", "-t", "1", "-cram", "0", *SERVER])
    plan = plan_file(tmp_path, 600)
    command = ("--launch", launch, "--model", str(served_model_file()), "--plan", plan, "--json")
    process = started(out, *command)
    left = wait_until(out, "steady", process)["target"]["pid"]
    process.kill()
    process.communicate(timeout=LONGEST_S)

    # The engine outlived its experiment, and is not to hold memory beside its successor.
    process = started(out, *command)
    assert process.stderr is not None
    assert any("[8/10] steady" in line for line in process.stderr)
    found = journal(out)
    assert found["target"]["pid"] != left
    assert not is_alive(left)
    os.kill(found["target"]["pid"], signal.SIGKILL)
    code, text, said = ended(process)
    assert code == 15, said
    after = json.loads(text)
    assert after["failure"]["step"] == "steady"
    assert "SIGKILL" in after["failure"]["words"]
    assert states(after)["short"] == "done"
    assert states(after)["steady"] == "failed"
    assert "SIGKILL" in after["verdict"]
    assert {one["label"] for one in after["snapshots"]} >= {"before load", "after warm-up"}

    # The same command is the same experiment, whatever port its engine had.
    again = started(out, "--launch", launch, "--model", str(served_model_file()), "--plan", plan, "--json")
    code, text, said = ended(again)
    assert code == 15, said
    assert json.loads(text) == after
