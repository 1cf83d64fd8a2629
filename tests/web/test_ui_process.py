"""The page's server as a process: what it runs ends with who asked, and with itself, and it leaves nothing behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.test_onlooker import metrics
from telemetry.http_server import files
from telemetry.http_server import serving as answering
from web_page import Ui, serving, wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are counted by /proc"),
]
# 40,000 plans: minutes.
LONG = {
    "command": "sweep",
    "sources": ["builtin:Llama-3.1-8B-Instruct"],
    "options": {
        "device": "H100 SXM 80GB",
        "tp": "1,2,4,8",
        "context": ",".join(str(1024 * place) for place in range(1, 101)),
        "concurrency": ",".join(str(place) for place in range(1, 101)),
    },
}


@contextmanager
def asking(ui: Ui, path: str, ask: object) -> Iterator[http.client.HTTPResponse]:
    """A question whose answer has begun; leaving closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(ui.address).port or 0, timeout=120)
    try:
        connection.request("POST", path, json.dumps(ask).encode(), {"x-vramledger-token": ui.token})
        yield connection.getresponse()
    finally:
        connection.close()


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_question_that_is_taken_back_ends_its_process(ui: Ui) -> None:
    assert len(ui.workers()) == 1
    with asking(ui, "/api/run", LONG) as answer:
        assert b"told" in answer.readline()
        assert len(ui.workers()) == 2
    wait_until(lambda: len(ui.workers()) == 1, "the command runs on")


def test_a_page_that_is_closed_is_looked_for_no_more(ui: Ui) -> None:
    with answering(files({"/metrics": metrics()})) as url:
        with asking(ui, "/api/live/watch", {"engine": url, "interval_s": 0.25}) as answer:
            assert json.loads(answer.readline())["command"].startswith("vramledger watch --url ")
            assert json.loads(answer.readline())["engine"]["total_blocks"] == 1000
            assert any("watch" in words for words in ui.workers())
        wait_until(lambda: len(ui.workers()) == 1, "it looks on")


def test_only_so_many_run_at_once(ui: Ui) -> None:
    """The others are told so, and nothing is left of those that ran."""
    answers = [asking(ui, "/api/run", LONG) for _ in range(6)]
    last = []
    try:
        for answer in answers:
            last.append(json.loads(answer.__enter__().readline()))
    finally:
        for answer in answers:
            answer.__exit__(None, None, None)
    assert sum("told" in said for said in last) == 4
    assert [said["exit_code"] for said in last if "told" not in said] == [75, 75]
    wait_until(lambda: len(ui.workers()) == 1, "commands run on")
    looks = [
        asking(ui, "/api/live/watch", {"engine": "http://127.0.0.1:9", "interval_s": 0.25}) for _ in range(10)
    ]
    begun = []
    try:
        for look in looks:
            begun.append(json.loads(look.__enter__().readline()))
    finally:
        for look in looks:
            look.__exit__(None, None, None)
    assert sum("command" in said for said in begun) == 8
    assert [said["ended"]["exit_code"] for said in begun if "ended" in said] == [75, 75]
    wait_until(lambda: len(ui.workers()) == 1, "it looks on")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_all_that_it_runs_and_leaves_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as ui, answering(files({"/metrics": metrics()})) as url:
        folder = Path(ui.workers()[0][-1])
        assert folder.is_dir()
        with (
            asking(ui, "/api/run", LONG) as running,
            asking(ui, "/api/live/watch", {"engine": url}) as looking,
        ):
            assert b"told" in running.readline()
            assert b"command" in looking.readline()
            wait_until(lambda: len(ui.workers()) == 3, "it does not run")
            pids = ui.worker_pids()
            ui.process.send_signal(number)
            _, said = ui.process.communicate(timeout=90)
        assert (ui.process.returncode, said) == (0, "")
        assert [pid for pid in pids if alive(pid)] == []
        assert not folder.exists()


def test_what_it_ran_ends_also_when_it_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as ui, answering(files({"/metrics": metrics()})) as url:
        with (
            asking(ui, "/api/run", LONG) as running,
            asking(ui, "/api/live/watch", {"engine": url, "interval_s": 0.25}) as looking,
        ):
            assert b"told" in running.readline()
            assert b"command" in looking.readline()
            wait_until(lambda: len(ui.workers()) == 3, "it does not run")
            pids = ui.worker_pids()
            ui.process.kill()
            ui.process.wait(60)
        wait_until(lambda: not [pid for pid in pids if alive(pid)], "something runs on")


def test_commands_are_not_told_the_keys_of_who_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted-token")
    monkeypatch.setenv("ENGINE_KEY", "planted-key")
    with serving(tmp_path) as ui:
        (pid,) = ui.worker_pids()
        told = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PATH=" in told
        assert b"planted" not in told


def test_what_lies_where_it_was_started_is_not_told_either(tmp_path: Path) -> None:
    """A folder of a person's, among the places that Python looks for modules in where nobody says otherwise."""
    (tmp_path / "home" / "draft").mkdir(parents=True)
    (tmp_path / "home" / "draft" / "config.json").write_text('{"model_type": "planted-secret"}')
    with serving(tmp_path / "home") as ui:
        told = []
        for folder in (tmp_path / "home" / "draft", tmp_path / "home" / "absent"):
            drafted = {"model": str(folder), "method": "eagle", "num_speculative_tokens": 1}
            options = {"device": "L40S", "speculative_config": json.dumps(drafted)}
            said = ui.run(
                {"command": "plan", "sources": ["builtin:Llama-3.1-8B-Instruct"], "options": options}
            )
            told.append(json.dumps(said).replace(folder.name, "NAME"))
    assert told[0] == told[1]
    assert "planted-secret" not in told[0]


def test_an_address_that_is_taken_or_a_key_that_is_not_there_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, said in (
            ([f"--port={taken.getsockname()[1]}"], "in use"),
            (["--engine=http://127.0.0.1:1", "--token-env=NOT_THERE"], "NOT_THERE"),
            (["--log=vllm.log"], "give --engine once"),
            (["--engine=ftp://x"], "not an address"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "vramledger", "ui", "--no-open", "--port=0", *options],
                cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            assert done.returncode == 2
            assert said in done.stderr
            assert "Traceback" not in done.stderr


def test_questions_at_once_are_each_answered(ui: Ui) -> None:
    found = {}

    def ask(name: str) -> None:
        found[name] = ui.run({"command": "kv", "sources": [f"builtin:{name}"]})["document"]

    names = ("Llama-3.1-8B-Instruct", "Qwen3-0.6B")
    threads = [threading.Thread(target=ask, args=(name,)) for name in names * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert {name: name in json.dumps(found[name]) for name in names} == dict.fromkeys(names, True)
