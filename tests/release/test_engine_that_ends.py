"""What `vramledger release` does with an engine that ends, and what becomes of the engine when the command itself is ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vramledger.cli.app import run
from vramledger.telemetry.engine_process import EngineDied, EngineProcess, free_port

RECORDED = Path(__file__).parent / "recorded"
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "Llama-3.1-8B-Instruct")
SERVES_ONCE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.handle_request()
server.handle_request()
raise SystemExit(7)
"""


def launch(script: Path) -> str:
    return f"{sys.executable} {script} {{port}}"


def release_of(out: Path, command: str) -> list[str]:
    flags = ["--engine", "vllm", "--device", "H100-80GB", "--max-model-len", "8192", "--allow-unpinned"]
    return ["release", EXAMPLE, *flags, "--launch", command, "-o", str(out)]


def test_a_known_failure_is_diagnosed_beneath_the_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "engine.py"
    log = (RECORDED / "vllm-llama-gqa-a-pool-too-small.log").read_text(encoding="utf-8")
    script.write_text(f"print({log!r}); raise SystemExit(1)", encoding="utf-8")
    assert run(release_of(tmp_path / "out", launch(script))) == 15
    said = capsys.readouterr().err
    message, _, diagnosis = said.partition("engine.log\n")
    assert "exit code 1" in message
    assert "load-time" in diagnosis
    assert "would help" in diagnosis


def test_an_unknown_end_shows_the_last_lines_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "engine.py"
    script.write_text("print('\\x1b[31mno such flag'); raise SystemExit(3)", encoding="utf-8")
    assert run([*release_of(tmp_path / "out", launch(script)), "--json"]) == 15
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"]["code"] == "engine"
    assert "no such flag" in shown.err
    assert "\x1b" not in shown.err


def test_an_engine_that_ends_while_it_is_asked_is_no_release(tmp_path: Path) -> None:
    port = free_port()
    command = (sys.executable, "-c", SERVES_ONCE, str(port))
    with EngineProcess(command, url=f"http://127.0.0.1:{port}", log=tmp_path / "l") as engine:
        engine.wait_ready(30)
        engine.check()
        with pytest.raises(EngineDied, match="exit code 7 while it was asked"):
            engine.check()


def test_ending_the_command_ends_the_engine(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    started = tmp_path / "pid"
    script.write_text(
        f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid()) + '.'); time.sleep(99)",
        encoding="utf-8",
    )
    with subprocess.Popen(
        [sys.executable, "-m", "vramledger", *release_of(tmp_path / "out", launch(script))],
        stderr=subprocess.DEVNULL,
    ) as command:
        while not (started.exists() and started.read_text().endswith(".")):
            assert command.poll() is None
            time.sleep(0.05)
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 128 + signal.SIGTERM
    stat = Path(f"/proc/{started.read_text().rstrip('.')}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"
