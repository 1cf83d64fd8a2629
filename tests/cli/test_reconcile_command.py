"""`vramledger reconcile`: sides from files or on the spot, pages, documents, the measured plan, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from five_kinds import DENSE, planned, write_config
from vramledger.answer import Plan
from vramledger.cli.app import run
from vramledger.documents.measurement import measurement_document
from vramledger.documents.plan import plan_document
from vramledger.documents.plan_reader import read_plan
from vramledger.evidence import measured
from vramledger.ledger import Owner
from vramledger.measurement import Figure, MeasuredPool, Measurement
from vramledger.pool import IntRange
from vramledger.report.schema import schema_of


def measurement_of(plan: Plan, **settings: Any) -> Measurement:
    assert plan.kv_pool is not None
    tokens = plan.kv_pool.tokens.expected
    return Measurement(
        sources=(),
        engine="vllm",
        engine_version=plan.inputs.engine_version,
        device=plan.inputs.device,
        tp=plan.inputs.tp,
        settings=tuple((dict(plan.inputs.settings) | settings).items()),
        figures=(
            Figure(
                owners=(Owner.WEIGHTS,),
                name="weights \x1b[31m",
                bytes=plan.ranks[0].owned(Owner.WEIGHTS),
                evidence=measured("run.log:7"),
            ),
        ),
        pools=(MeasuredPool(evidence=measured("run.log:9"), tokens=IntRange(tokens, tokens, tokens)),),
    )


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    """A plan, and a run under another share of the device."""
    plan, other = planned("dense"), planned("dense", gpu_memory_utilization=0.8)
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan_document(plan)))
    found = measurement_of(other, gpu_memory_utilization=0.8)
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(measurement_document(found)))
    return str(tmp_path / "plan.json"), str(tmp_path / "run.json")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "dense", DENSE).parent)


def test_the_page_names_what_differs_first_and_fits(
    sides: tuple[str, str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reconcile", *sides, "--model", model]) == 10
    page = capsys.readouterr().out
    assert "\x1b" not in page
    assert all(len(line) <= 80 for line in page.splitlines())
    differs = page.index("gpu_memory_utilization: planned 0.92, measured 0.8")
    assert differs < page.index("\n  weights") < page.index("\n  tokens ")
    assert (
        "100 % other setting than planned (planned again): gpu_memory_utilization is 0.8, planned"
        in " ".join(page.split())
    )


def test_without_the_model_nothing_is_tried(
    sides: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reconcile", *sides]) == 10
    assert "name the model with --model to have it tried" in " ".join(capsys.readouterr().out.split())


def test_a_plan_made_on_the_spot_has_the_settings_of_the_run(
    sides: tuple[str, str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reconcile", sides[1], "--model", model]) == 0
    assert "settings that differ" not in capsys.readouterr().out
    assert run(["reconcile", sides[1], "--model", model, "--gpu-memory-utilization", "0.9"]) == 10
    assert "planned 0.9, measured 0.8" in capsys.readouterr().out
    assert run(["reconcile", sides[1], "--model", model, "--device", "B200"]) == 10


def test_settings_that_an_engine_asked_for_does_not_take_are_left_to_it(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of_now = Measurement(
        sources=(),
        engine="vllm",
        engine_version="0.27.1",
        device="NVIDIA H100 80GB HBM3",
        settings=(("dcp_comm_backend", "ag_rs"), ("max_model_len", 4096)),
    )
    file = tmp_path / "now.json"
    file.write_bytes(msgspec.json.encode(measurement_document(run_of_now)))
    assert run(["reconcile", str(file), "--model", model, "--engine", "vllm==0.9.0", "--exit-zero"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "planned without dcp_comm_backend: measured, and not taken by vllm==0.9.0" in page
    assert "engine_version: planned 0.9.0, measured 0.27.1" in page
    asked = ["--engine", "vllm==0.9.0", "--dcp-comm-backend", "ag_rs"]
    assert run(["reconcile", str(file), "--model", model, *asked]) == 2
    assert "has no --dcp-comm-backend" in capsys.readouterr().err


def test_what_a_plan_on_the_spot_was_guessed_from_is_told(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = Measurement(sources=(), engine="vllm", engine_version="99.0", device="NVIDIA H100 80GB HBM3")
    file = tmp_path / "unknown.json"
    file.write_bytes(msgspec.json.encode(measurement_document(unknown)))
    assert run(["reconcile", str(file), "--model", model, "--exit-zero"]) == 0
    assert "note: planned as the newest version" in " ".join(capsys.readouterr().out.split())


def test_the_document_is_valid(sides: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reconcile", *sides, "--json", "--exit-zero"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("reconciliation")).validate(found)
    assert found["standing"] == "outside"
    assert [item["name"] for item in found["differences"]] == ["gpu_memory_utilization"]


def test_the_measured_plan_is_a_plan(
    sides: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "measured.json"
    run(["reconcile", *sides, "--write-plan", str(out)])
    plan = read_plan(out.read_bytes(), where="measured.json")
    assert any(entry.evidence.source == "run.log:7" for entry in plan.ranks[0].entries)
    capsys.readouterr()
    assert run(["reconcile", str(out), sides[1]]) == 0


def test_nothing_to_compare_cannot_be_told(
    sides: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.json").write_bytes(msgspec.json.encode(measurement_document(Measurement(sources=()))))
    assert run(["reconcile", sides[0], str(tmp_path / "empty.json")]) == 11
    assert "cannot be told" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Name a MEASUREMENT"),
        (["PLAN"], "Name a PLAN and a MEASUREMENT"),
        (["--log", "x.log"], "Name a PLAN, or with --model"),
        (["PLAN", "RUN", "--log", "x.log"], "--log takes the place of MEASUREMENT"),
        (["PLAN", "RUN", "RUN"], "One PLAN and one MEASUREMENT"),
        (["PLAN", "RUN", "--device", "H100"], "A PLAN has its own device"),
        (["PLAN", "RUN", "--max-num-seqs", "4"], "A PLAN has its own max_num_seqs"),
        (["RUN", "PLAN"], "is not a plan of version 1"),
        (["PLAN", "PLAN"], "is not a measurement of version 1"),
        (["RUN", "--model", "MODEL", "--engine", "nothing"], "unknown engine 'nothing'"),
    ],
)
def test_refusals(
    sides: tuple[str, str], model: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"PLAN": sides[0], "RUN": sides[1], "MODEL": model}
    assert run(["reconcile", *(names.get(text, text) for text in arguments)]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_log_of_no_engine_is_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junk = tmp_path / "junk.log"
    junk.write_bytes(bytes(range(256)) * 64)
    assert run(["reconcile", "--log", str(junk), "--model", model]) == 2
    assert "no line tells which engine wrote it" in capsys.readouterr().err


def test_a_run_without_a_device_asks_for_it(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Measurement(sources=(), engine="vllm")
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(measurement_document(found)))
    assert run(["reconcile", str(tmp_path / "run.json"), "--model", model]) == 2
    assert "name it with --device" in capsys.readouterr().err
