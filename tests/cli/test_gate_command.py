"""`vramledger gate`, and an experiment's folder in `vramledger manifest`, as a process would see them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from experiment_values import experiment, point, trend
from five_kinds import DENSE, write_config
from manifests import AT, COMMIT, facts, given
from vramledger.cli import main
from vramledger.experiment.journal import experiment_bytes
from vramledger.experiment.result import Experiment
from vramledger.manifest.build import build
from vramledger.manifest.experiment_facts import facts_of, with_experiment
from vramledger.manifest.gate_policy import default_policy_text
from vramledger.manifest.writing import manifest_bytes
from vramledger.report.schema import schema_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(name: str, found: Experiment) -> str:
    parts = facts_of(found)
    document = build(given(facts=with_experiment(facts(), parts), experiment=parts.result))
    Path(name).write_bytes(manifest_bytes(document))
    return name


def lost() -> Experiment:
    return experiment(
        point=point(per_s=2.0, low_per_s=1.9, high_per_s=2.1),
        trends=(trend("100% of, it: all\n", verdict="grows"),),
    )


def test_it_passes_falls_short_and_cannot_be_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = saved("old.json", experiment())
    assert main(["gate", old, old]) == 0
    page = capsys.readouterr().out
    assert "passes; policy as usual (--print-policy)" in page
    assert max(map(len, page.splitlines())) <= 80
    assert main(["gate", old, saved("new.json", lost())]) == 18
    assert "does not pass for capacity_requests_per_s < -5%" in capsys.readouterr().out
    wide = saved("wide.json", experiment(point=point(low_per_s=1.0)))
    assert main(["gate", old, wide]) == 11
    assert "cannot be told for capacity_requests_per_s < -20%" in capsys.readouterr().out
    assert main(["gate", old, "new.json", "--exit-zero"]) == 0


def test_the_document_follows_its_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = saved("old.json", experiment()), saved("new.json", lost())
    assert main(["gate", old, new, "--json"]) == 18
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema_of("gate"))
    assert (found["passes"], found["policy"], found["old"]["file"]) == (False, "", "old.json")
    assert main(["gate", new, "--json", "--exit-zero"]) == 0
    alone = json.loads(capsys.readouterr().out)
    jsonschema.validate(alone, schema_of("gate"))
    assert alone["old"] is None
    assert "not asked" in {reason["kept"] for reason in alone["reasons"]}


def test_annotations_are_one_line_each_and_escaped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = saved("old.json", experiment()), saved("new.json", lost())
    assert main(["gate", old, new, "--github"]) == 18
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    capacity = next(line for line in told if "capacity_requests_per_s" in line)
    assert capacity.startswith(
        "::error file=new.json,title=vramledger gate%3A capacity_requests_per_s < -5%25::not kept: -50%25"
    )
    grew = next(line for line in told if "nothing grew" in line)
    assert "100%25 of, it: all" in grew
    assert main(["gate", old, old, "--github"]) == 0
    assert "::" not in capsys.readouterr().out
    assert main(["gate", old, new, "--github", "--json"]) == 2


def test_the_usual_policy_can_be_printed_changed_and_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "--print-policy"]) == 0
    text = capsys.readouterr().out
    assert text == default_policy_text()
    old, new = (
        saved("old.json", experiment()),
        saved("new.json", experiment(point=point(per_s=3.0, low_per_s=2.9))),
    )
    Path("policy.toml").write_text(text)
    assert main(["gate", old, old, "--policy", "policy.toml"]) == 0
    Path("policy.toml").write_text('keep = ["capacity_requests_per_s >= 5"]')
    assert main(["gate", new, "--policy", "policy.toml"]) == 18
    assert "does not pass for capacity_requests_per_s >= 5; policy policy.toml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "give OLD and NEW, or NEW alone"),
        (["a.json", "b.json", "c.json"], 2, "give OLD and NEW, or NEW alone"),
        (["--print-policy", "a.json"], 2, "--print-policy prints the usual policy"),
        (["a.json"], 4, "a.json"),
        (["broken.json"], 2, "broken.json"),
        (["old.json", "--policy", "none.toml"], 4, "none.toml"),
        (["old.json", "--policy", "wrong.toml"], 2, "wrong.toml: keep 'headrom >= 1', column 1"),
    ],
)
def test_wrong_input_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    saved("old.json", experiment())
    Path("broken.json").write_text('{"kind": "manifest"')
    Path("wrong.toml").write_text('keep = ["headrom >= 1"]')
    assert main(["gate", *arguments]) == code
    assert said in capsys.readouterr().err


def test_a_manifest_that_was_changed_does_not_pass_the_gate(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = saved("old.json", experiment())
    text = Path(old).read_text()
    assert '"requests_per_s": 4.0' in text or '"requests_per_s": 4' in text
    Path("forged.json").write_text(text.replace('"requests_per_s": 4', '"requests_per_s": 9'))
    assert main(["gate", old, "forged.json"]) == 2
    assert "was changed after it was written" in capsys.readouterr().err


def test_a_manifest_takes_an_experiment_s_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(write_config(folder / "dense", DENSE).parent)
    (folder / "exp").mkdir()
    (folder / "exp" / "experiment.json").write_bytes(experiment_bytes(experiment()))
    made = [
        "manifest", model, "--device", "H200-141GB", "--tp", "2", "--engine-revision", COMMIT, "--at", AT,
        "--experiment",
    ]  # fmt: skip
    assert main([*made, "exp", "-o", "r.json"]) == 0
    page = capsys.readouterr().out
    assert "serves 4 requests/s well (3.6 to 4.4, 0.95 confidence)" in page
    found = json.loads(Path("r.json").read_text())
    assert found["experiment"]["operating_point"]["requests_per_s"] == 4.0
    (source,) = [item for item in found["sources"] if item["what"] == "experiment"]
    assert source["name"] == "experiment.json"
    assert source["from"] == "2026-11-30T00:53:20Z"
    assert main([*made, "exp/experiment.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    (folder / "exp" / "experiment.json").write_text('{"kind": "experiment", "schema_version": "1.0"}')
    assert main([*made, "exp"]) == 2
    assert "experiment.json is no experiment" in capsys.readouterr().err
    assert main([*made, "nothing"]) == 4


def test_an_experiment_of_another_engine_is_no_evidence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_config(folder / "dense", DENSE).parent)
    target = replace(experiment().target, engine="sglang")
    Path("e.json").write_bytes(experiment_bytes(experiment(target=target)))
    asked = [
        "manifest",
        model,
        "--device",
        "H200-141GB",
        "--engine-revision",
        COMMIT,
        "--experiment",
        "e.json",
    ]
    assert main(asked) == 2
    assert "engine is 'sglang', the plan's 'vllm'" in capsys.readouterr().err
