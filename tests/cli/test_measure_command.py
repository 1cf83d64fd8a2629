"""`vramledger measure` and `vramledger sample` at the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import jsonschema
import pytest

from telemetry.http_server import files, serving
from vramledger.cli.app import run
from vramledger.report.schema import schema_of
from vramledger.telemetry.marks import MARK
from vramledger.telemetry.series_file import read_series

METRICS = Path(__file__).parents[1] / "engines" / "recorded" / "metrics" / "vllm-0.32.0.metrics"
CSV = "index, name, memory.total [MiB], memory.used [MiB], memory.free [MiB]\n0, NVIDIA L40S, 46068 MiB, 40001 MiB, 5500 MiB\n"

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema_of(str(found["kind"])))
    return found


def test_a_mix_of_sources_is_one_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("smi.csv").write_text(CSV)
    Path("metrics.txt").write_bytes(METRICS.read_bytes())
    out = Path("measurement.json")
    arguments = ["measure", "--metrics", "metrics.txt", "--nvidia-smi", "smi.csv", "-o", str(out)]
    assert run([*arguments, "--json"]) == 0
    found = document(capsys)
    assert json.loads(out.read_text()) == found
    assert found["engine"] == "vllm"
    assert found["device"] == "NVIDIA L40S"
    sources = found["sources"]
    assert isinstance(sources, list)
    assert [(source["kind"], len(source["sha256"])) for source in sources] == [
        ("metrics", 64),
        ("nvidia-smi", 64),
    ]
    assert run(arguments) == 0
    page = capsys.readouterr().out
    assert "39.06 GiB" in page
    assert [line for line in page.splitlines() if len(line) > 80] == []


def test_a_running_engine_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(files({"/metrics": METRICS.read_bytes()})) as url:
        assert run(["measure", "--url", url, "--json"]) == 0
    assert document(capsys)["engine"] == "vllm"


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CSV.encode())))
    assert run(["measure", "--nvidia-smi", "-", "--json"]) == 0
    assert document(capsys)["device"] == "NVIDIA L40S"
    assert run(["measure", "--nvidia-smi", "-", "--metrics", "-"]) == 2
    assert "once only" in capsys.readouterr().err


@linux
def test_host_memory_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", "--pid", str(os.getpid()), "--nvml", "--json"]) == 0
    found = document(capsys)
    host = found["host"]
    assert isinstance(host, list)
    assert os.getpid() in [item["pid"] for item in host]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["measure"], 2, "Nothing to measure"),
        (["measure", "--metrics", "absent"], 4, "absent cannot be read"),
        (["measure", "--metrics", __file__], 2, "test_measure_command.py holds"),
        (["measure", "--server-info", __file__], 2, "no answer of an engine"),
        (["measure", "--nvidia-smi", __file__], 2, "no output of nvidia-smi"),
        (["measure", "--dcgm", __file__], 2, "no DCGM_FI_DEV_FB"),
        (["measure", "--series", __file__], 2, "is no row of a series"),
        (["measure", "--url", "ftp://a"], 2, "not an address"),
        (["measure", "--url", "http://127.0.0.1:1"], 4, "cannot be asked"),
        (["measure", "--url", "http://127.0.0.1:1", "--token-env", "NO_SUCH_TOKEN"], 2, "holds no token"),
        (["measure", "--metrics", str(METRICS), "--engine", "nobody"], 2, "unknown engine"),
        (["measure", "--pid", "2147480000"], 4, "no process 2147480000"),
        (["sample", "a.csv", "--pid", "1"], 2, "neither"),
        (["sample", "a.jsonl"], 2, "Nothing to sample"),
        (["sample", "a.jsonl", "--phase", "load"], 2, "--phase"),
        (["sample", "absent/a.jsonl", "--nvml", "--url", "http://127.0.0.1:1"], 74, "cannot be written"),
    ],
)
def test_refusals(
    arguments: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["--series", "--snapshot", "--metrics", "--server-info", "--nvidia-smi"])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert run(["measure", kind, str(pipe)]) == 4
    assert "is not a regular file" in capsys.readouterr().err


def test_a_measurement_does_not_take_the_place_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.txt").write_bytes(METRICS.read_bytes())
    Path("link").symlink_to("m.txt")
    assert run(["measure", "--metrics", "m.txt", "-o", "link"]) == 2
    assert "-o names the source 'm.txt'" in capsys.readouterr().err
    assert run(["measure", "--metrics", "m.txt", "-o", "-"]) == 2
    assert "--json prints the document" in capsys.readouterr().err
    assert Path("m.txt").read_bytes() == METRICS.read_bytes()


def test_an_exporter_is_waited_for_as_long_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    done = threading.Event()

    def never(_: object) -> None:
        done.wait()

    with serving(never) as url:
        assert run(["measure", "--dcgm", f"{url}/metrics", "--timeout", "0.1"]) == 4
        done.set()
    assert "took longer than 0.1 s" in capsys.readouterr().err


def test_a_server_is_sampled_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    with serving(files({"/metrics": METRICS.read_bytes()})) as url:
        arguments = ["sample", str(path), "--url", url, "--interval", "0.01", "--duration", "0.03", "--json"]
        assert run(arguments) == 0
    found = document(capsys)
    rows = list(read_series(path))
    assert found["rows"] == len(rows)
    assert [row.label for row in rows if row.name == MARK] == ["before load", "end"]
    assert "kv_usage_ratio" in {row.name for row in rows}
    assert run(["measure", "--series", str(path)]) == 0
    assert "of the KV pool was in use" in " ".join(capsys.readouterr().out.split())


def test_a_source_that_never_answers_ends_with_a_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    assert run(["sample", str(path), "--url", "http://127.0.0.1:1", "--duration", "0"]) == 4
    assert "never answered" in capsys.readouterr().err
    assert [row.label for row in read_series(path)] == ["before load", "end"]


def test_a_mark_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    assert run(["sample", str(path), "--mark", "prefill", "--phase", "prefill", "--json"]) == 0
    assert document(capsys)["rows"] == 0
    (left,) = tmp_path.iterdir()
    assert json.loads(left.read_text())["label"] == "prefill"


@linux
def test_sampling_ends_with_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"]) as process:
        reaper = threading.Thread(target=process.wait)
        reaper.start()
        pid = str(process.pid)
        assert run(["sample", str(path), "--pid", pid, "--until-exit", pid, "--interval", "0.02"]) == 0
        reaper.join()
    assert "rows in" in capsys.readouterr().err
    assert process.pid in {row.pid for row in read_series(path)}
