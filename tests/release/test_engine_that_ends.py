"""What `vramledger release` does with an engine that ends, and what becomes of the engine when the command itself is ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tools.real_engines.cases import config_of

from vramledger.cli.app import run
from vramledger.release.autopsy import autopsy
from vramledger.release.exercise import Limits, exercise
from vramledger.release.steps import Order
from vramledger.telemetry.engine_process import EngineDied, EngineProcess, free_port, signals_later

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


def test_a_stated_pool_too_small_is_sized_by_the_ledger_with_the_block_that_nobody_gets(
    tmp_path: Path,
) -> None:
    model = tmp_path / "config.json"
    model.write_text(json.dumps(config_of("llama-gqa")), encoding="utf-8")
    order = Order(
        model=str(model),
        engine="vllm==0.32.0",
        device="cpu:16GiB",
        out=tmp_path,
        at="",
        made_by="",
        flags={"max_model_len": "2048", "enforce_eager": True, "kv_cache_memory_bytes": "1M"},
    )
    found = autopsy(order, (RECORDED / "vllm-llama-gqa-a-pool-too-small.log",))
    changes = [remedy.change for item in found.failures for remedy in item.remedies]
    # 17 blocks of 128 tokens of 1,024 bytes: sixteen for the request and the null block.
    assert f"kv_cache_memory_bytes {1 << 20} → {17 * 128 * 1024}" in changes


def test_a_failure_of_no_known_class_names_the_exceptions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "engine.py"
    log = "(Worker pid=1) ERROR WorkerProc failed to start.\n(Worker pid=1) RuntimeError: The size of tensor a (768) must match"
    script.write_text(f"print({log!r}); raise RuntimeError('See root cause above')", encoding="utf-8")
    assert run(release_of(tmp_path / "out", launch(script))) == 15
    said = capsys.readouterr().err
    named = said.partition("the first first\n")[2].splitlines()
    assert named[0].strip().startswith("RuntimeError: The size of tensor a")


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


def test_nothing_more_is_asked_of_an_engine_that_is_gone() -> None:
    asked: list[str] = []

    def gone() -> None:
        raise EngineDied("the engine ended")

    limits = Limits(context_len=512, concurrency=2, vocab_size=1000)
    with pytest.raises(EngineDied):
        exercise(
            f"http://127.0.0.1:{free_port()}",
            "m",
            limits,
            lambda: (None, None),
            mark=asked.append,
            check=gone,
        )
    assert asked == ["warm-up"]


def test_streams_that_fail_are_not_waited_for() -> None:
    limits = Limits(context_len=512, concurrency=2, vocab_size=1000)
    done = exercise(f"http://127.0.0.1:{free_port()}", "m", limits, lambda: (None, None))
    assert [step.name for step in done.steps] == ["warm-up", "prefill", "decode", "prefix", "cancel"]
    assert all(step.failed == step.answers for step in done.steps)
    assert done.returned.dropped == 0


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
        try:
            while not (started.exists() and started.read_text().endswith(".")):
                assert command.poll() is None
                time.sleep(0.05)
            command.send_signal(signal.SIGTERM)
            assert command.wait(60) == 128 + signal.SIGTERM
        finally:
            command.kill()
    stat = Path(f"/proc/{started.read_text().rstrip('.')}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_signal_while_an_engine_is_started_waits_until_it_is_known() -> None:
    done = []

    def end(*_: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit), signals_later():
            signal.raise_signal(signal.SIGTERM)
            done.append("started")
        assert done == ["started"]
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)
