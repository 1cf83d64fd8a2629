"""`vramledger log` from outside."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import jsonschema
import pytest

from vramledger import engines
from vramledger.cli import main
from vramledger.report.schema import schema_of

START = """\
(EngineCore pid=2) INFO 11-29 16:12:51 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x
(Worker_TP0 pid=3) INFO 11-29 16:12:55 [runner.py:9] Model loading took 14.99 GiB memory and 3 seconds
(Worker_TP1 pid=4) INFO 11-29 16:12:55 [runner.py:9] Model loading took 14.99 GiB memory and 3 seconds
(EngineCore pid=2) INFO 11-29 16:12:59 [kv.py:1] GPU KV cache size: 8,192 tokens
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO 11-29 16:13:09 [stats.py:2] Engine 000: Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.5%
(APIServer pid=1) INFO 11-29 16:13:19 [stats.py:2] Engine 000: Running: 9 reqs, Waiting: 0 reqs, GPU KV cache usage: 91.0%
(EngineCore pid=2) ERROR 11-29 16:14:10 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. \x1b]0;x\x07
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(engines, "_LOGS", {"spoken": "telemetry.spoken_log"})
    path = tmp_path / "serve.log"
    path.write_text(START, encoding="utf-8")
    return str(path)


def test_the_page_is_a_timeline(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", log]) == 0
    page = capsys.readouterr().out
    for words in (
        "spoken 0.32.0",
        "load",
        "ranks 0-1: weights 14.99 GiB",
        "kv tokens 8,192",
        "2 reports",
        "torch",
        "first at line 8, +1 min 19 s",
    ):
        assert words in page
    assert "\x1b" not in page
    assert [text for text in page.splitlines() if len(text) > 80 and log not in text] == []


def test_json_follows_the_schema(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", log, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("log")).validate(found)
    assert found["engines"] == ["spoken"] and found["sources"][0]["lines"] == 8
    (steps,) = found["repeated"]
    running = next(series for series in steps["series"] if series["name"] == "running_requests")
    assert (running["lowest"], running["highest"], running["last"]) == (3, 9, 9)
    assert [one["phase"] for one in found["observations"]][:4] == ["start", "load", "load", "warm-up"]
    assert sum(found["failures"].values()) == 1


def test_followed_standard_input_is_lines_of_observations(
    log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(log).open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert main(["log", "-", "--follow", "--json"]) == 0
    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [one["event"] for one in lines] == [
        "version", "weights", "weights", "kv_pool", "ready", "step", "step", "failure",
    ]  # fmt: skip
    assert {one["source"] for one in lines} == {"<stdin>"}


def test_wrong_input_has_its_exit_code(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", log + ".none"]) == 4
    assert main(["log", log, "--engine", "nothing"]) == 2
    assert "known: spoken" in capsys.readouterr().err


def test_a_log_of_nobody_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "junk.log"
    path.write_bytes(b"\x00\x01\xff" * 5_000 + b"\n")
    assert main(["log", str(path)]) == 0
    page = capsys.readouterr().out
    assert "no known engine" in page and "NUL" in page and "not UTF-8" in page
