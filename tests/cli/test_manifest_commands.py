"""`vramledger manifest`, `diff` and `audit` as a process would see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from five_kinds import DENSE, planned, write_config
from manifests import AT, COMMIT, bare, facts, measurement, whole
from vramledger.cli import main
from vramledger.documents.measurement import measurement_document
from vramledger.documents.plan import plan_document
from vramledger.engines import engine_names, find_engine
from vramledger.manifest.writing import manifest_bytes
from vramledger.report.schema import schema_of

RECORDED = Path(__file__).parents[1] / "manifest" / "recorded" / "manifest-1.0.json"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "dense", DENSE).parent)


def ask(model: str, *more: str) -> list[str]:
    return [
        "manifest", model, "--device", "H200-141GB", "--tp", "2", "--engine-revision", COMMIT, "--at", AT, *more,
    ]  # fmt: skip


def saved(tmp_path: Path, document: Any, name: str = "r.json") -> str:
    path = tmp_path / name
    path.write_bytes(manifest_bytes(document))
    return str(path)


def test_one_is_written_shown_and_verified(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "release.json"
    assert main(ask(model, "-o", str(file))) == 0
    page = capsys.readouterr().out
    assert "not evidenced: adapters" in page
    assert "written to" in page
    assert max(map(len, page.splitlines())) <= 90  # a digest is one word
    assert main(["manifest", "show", str(file)]) == 0
    assert "KV pool" in capsys.readouterr().out
    assert main(["manifest", "verify", str(file)]) == 0
    assert capsys.readouterr().out.startswith("sound: sha256:")
    jsonschema.validate(json.loads(file.read_text()), schema_of("manifest"))
    assert main(["manifest", "show", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(file.read_text())


def test_the_same_question_gives_the_same_bytes(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("one.json", "two.json")]
    for file in files:
        assert main(ask(model, "-o", str(file))) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    capsys.readouterr()
    assert main(ask(model, "--json")) == 0
    assert capsys.readouterr().out.encode() == files[0].read_bytes()


def test_a_file_that_is_there_stays_without_force(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "release.json"
    file.write_text("mine")
    assert main(ask(model, "-o", str(file))) == 2
    assert "exists already" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main(ask(model, "-o", str(file), "--force")) == 0
    assert json.loads(file.read_text())["kind"] == "manifest"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert main(ask(model, "-o", str(tmp_path / "no" / "such" / "folder.json"))) == 74


def test_a_manifest_takes_no_source_s_place_even_with_force(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "facts.json"
    file.write_bytes(msgspec.json.encode(facts()))
    before = file.read_bytes()
    assert main(ask(model, "--facts", str(file), "-o", str(file), "--force")) == 2
    assert "-o names the source" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.parametrize("word", ["show", "verify"])
def test_show_and_verify_ask_for_their_file(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", word]) == 2
    assert "give one MODEL, or show FILE, or verify FILE" in capsys.readouterr().err


def test_from_a_plan_with_evidence(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", model, "--device", "H200-141GB", "--tp", "2", "--json"]) == 0
    (tmp_path / "plan.json").write_text(capsys.readouterr().out)
    measured = measurement_document(measurement(planned("dense")))
    (tmp_path / "measured.json").write_bytes(msgspec.json.encode(measured))
    (tmp_path / "facts.json").write_bytes(msgspec.json.encode(facts(capacity_results=())))
    points = {"capacity_results": msgspec.to_builtins(facts().capacity_results)}
    (tmp_path / "load.json").write_text(json.dumps(points))
    asked = [
        "manifest", model, "--plan", str(tmp_path / "plan.json"), "--measurement", str(tmp_path / "measured.json"),
        "--facts", str(tmp_path / "facts.json"), "--capacity", str(tmp_path / "load.json"),
        "--engine-revision", COMMIT, "--at", AT, "--json",
    ]  # fmt: skip
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured_weight_steady_bytes_per_rank"] == 8_064_081_920
    assert len(found["capacity_results"]) == 2
    assert {source["what"] for source in found["sources"]} == {"plan", "measurement", "facts", "capacity"}
    assert all(len(source["sha256"]) == 64 for source in found["sources"])
    # Plan and measurement are compared on the spot.
    assert found["not_evidenced"] == ["experiment"]
    assert found["reconciliation"]["standing"] in ("inside", "outside")
    assert main([*asked, "--tp", "4"]) == 2
    assert (
        "--plan holds the flags it was made with; leave out --tensor-parallel-size" in capsys.readouterr().err
    )
    assert main([asked[0], *asked[2:]]) == 2
    assert "MODEL is missing" in capsys.readouterr().err
    assert main([asked[0], *asked[2:], "--allow-unpinned"]) == 0
    assert json.loads(capsys.readouterr().out)["model_revision"] == "unpinned:dense"


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--engine-revision", "main"], 2, "moves or is no revision"),
        (["--at", "yesterday"], 2, "is no time with its zone"),
        (["--at", "2026-11-30T01:02:03"], 2, "is no time with its zone"),
        (["--facts", "no.json"], 4, "no.json"),
        (["--measurement", "a", "--log", "b"], 2, "not both"),
    ],
)
def test_wrong_input_is_named(
    model: str, more: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(ask(model, *more)) == code
    assert said in capsys.readouterr().err


def test_unpinned_is_refused_marked_and_fails_its_audit(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["manifest", model, "--device", "H200-141GB", "-o", str(tmp_path / "r.json")]
    assert main(asked) == 2
    assert "give --engine-revision" in capsys.readouterr().err
    assert main([*asked, "--allow-unpinned"]) == 0
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "r.json"), "--json"]) == 14
    found = json.loads(capsys.readouterr().out)
    assert {item["name"]: item["state"] for item in found["items"]}["revisions"] == "failed"


@pytest.mark.parametrize("at", ["1796000000", "2026-11-30T00:53:20Z", "2026-11-30T02:53:20+02:00"])
def test_times(model: str, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ask(model)[:-2], "--at", at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["created_at"] == "2026-11-30T00:53:20Z"


@pytest.mark.parametrize(
    "text",
    [
        '{"schema_version": "1.0", "kind": "facts", "tool_wait_polcy": null}',
        '{"schema_version": "1.0", "kind": "facts", "adapters": {}}',
        '{"schema_version": "2.0", "kind": "facts"}',
        "[]",
        "{",
    ],
)
def test_wrong_facts_are_named(
    model: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "facts.json").write_text(text)
    assert main(ask(model, "--facts", str(tmp_path / "facts.json"))) == 2
    assert "facts.json" in capsys.readouterr().err


def test_facts_follow_their_schema() -> None:
    jsonschema.validate(json.loads(msgspec.json.encode(facts())), schema_of("facts"))


def test_a_difference_and_its_thresholds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = saved(tmp_path, bare(), "old.json")
    new = tmp_path / "new.json"
    new.write_bytes(msgspec.json.encode(plan_document(planned("dense", kv_cache_dtype="fp8"))))
    assert main(["diff", old, str(new)]) == 0
    page = capsys.readouterr().out
    assert "kv_format: bfloat16 -> fp8" in page
    assert max(len(row) for row in page.splitlines() if str(tmp_path) not in row) <= 80
    assert main(["diff", old, str(new), "--fail-if", "settings.kv_cache_dtype != same"]) == 13
    assert "not set before, fp8 after" in capsys.readouterr().out
    asked = ["diff", old, str(new), "--fail-if", "kv_tokens < -2%"]
    assert main(asked) == 0
    assert main([*asked, "--fail-if", "measured_peak > 0B"]) == 11
    assert main([*asked, "--fail-if", "measured_peak > 0B", "--fail-if", "kv_format != same"]) == 13
    assert "--fail-if kv_format != same: tripped" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema_of("diff"))
    assert (found["before"]["kind"], found["after"]["kind"]) == ("manifest", "plan")
    assert found["thresholds"][0]["outcome"] == "held"


def test_nothing_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, whole())
    assert main(["diff", file, file]) == 0
    assert "nothing changed" in capsys.readouterr().out


def test_quantities_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, whole())
    assert main(["diff", file, file, "--list-quantities"]) == 0
    page = capsys.readouterr().out
    for name in ("kv_tokens", "owner.activation", "peak.prefill", "settings.max_model_len", "measured_peak"):
        assert f"  {name} " in page


def test_a_wrong_expression_and_wrong_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, whole())
    assert main(["diff", file, file, "--fail-if", "kv_tokens ~ 2"]) == 2
    assert "column 11" in capsys.readouterr().err
    for text in ("{}", '{"kind": "audit"}', "junk"):
        (tmp_path / "x.json").write_text(text)
        assert main(["diff", file, str(tmp_path / "x.json")]) == 2
    assert main(["diff", file, str(tmp_path / "absent.json")]) == 4


def test_an_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole_file, bare_file = saved(tmp_path, whole()), saved(tmp_path, bare(), "bare.json")
    assert main(["audit", whole_file, "--policy", "strict"]) == 0
    assert "22 passed, 0 failed, 0 not evidenced; policy strict: passes" in capsys.readouterr().out
    assert main(["audit", bare_file]) == 14
    page = capsys.readouterr().out
    assert "not evidenced  disk and runtime weights apart" in page
    assert "evidenced by a start-up log" in page
    assert "plan: holds for" in page
    assert max(map(len, page.splitlines())) <= 80
    assert main(["audit", bare_file, "--policy", "warn"]) == 0
    assert main(["audit", bare_file, "--policy", "warn", "--require", "load"]) == 14
    assert main(["audit", bare_file, "--require", "loads"]) == 2
    capsys.readouterr()
    assert main(["audit", bare_file, "--json"]) == 14
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema_of("audit"))
    assert (found["passed"], found["failed"], found["not_evidenced"]) == (4, 0, 18)
    assert "shards" in found["trips"]
    assert found["plan_holds"] is True


@pytest.mark.parametrize("command", [["audit"], ["manifest", "verify"], ["manifest", "show"]])
def test_a_manifest_that_was_changed_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(saved(tmp_path, whole()))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tp": 4}))
    assert main([*command, str(file)]) == 2
    said = capsys.readouterr().err
    assert "was changed after it was written" in said
    assert "tp is 4" in said


def test_a_recorded_manifest_is_read_by_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(RECORDED)
    assert main(["manifest", "verify", file]) == 0
    assert main(["diff", file, file]) == 0
    assert main(["audit", file, "--policy", "strict"]) == 0
    assert capsys.readouterr().err == ""


def test_no_engines_flag_is_hidden_by_an_option_of_the_manifest() -> None:
    from vramledger.cli.manifest_command import command

    own = {name for param in command.params for name in (param.name or "", *param.opts)}
    shared = {"device", "engine"}
    for engine in engine_names():
        for option in find_engine(engine)[0].OPTIONS:
            assert not {option.name, option.flag, *option.aliases} & (own - shared), option.flag
