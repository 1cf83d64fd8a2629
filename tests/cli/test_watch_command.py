"""`vramledger watch`: what it prints, as lines and as documents, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from gateway.test_onlooker import metrics
from telemetry.http_server import files, serving
from vramledger.cli import main
from vramledger.report.schema import schema_of

ROOT = Path(__file__).parents[2]


def test_each_look_is_a_line_of_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(files({"/metrics": metrics()})) as url:
        assert main(["watch", "--url", url, "--looks", "2", "--interval", "0.1", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        jsonschema.Draft202012Validator(schema_of("moment")).validate(line)
    assert [line["engine"]["free_blocks"] for line in lines] == [750, 750]
    assert lines[0]["at_s"] < lines[1]["at_s"]


def test_the_page_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(files({"/metrics": metrics()})) as url:
        assert main(["watch", "--url", url, "--looks", "1"]) == 0
    assert "running 4, waiting 2; KV 750 of 1,000 blocks free; preempted 3" in capsys.readouterr().out


def test_nothing_that_answers_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(files({})) as url:
        assert main(["watch", "--url", url, "--looks", "1"]) == 4
    assert "nothing answers" in capsys.readouterr().out
    assert main(["watch"]) == 2
    assert main(["watch", "--url", "file:///etc/passwd", "--looks", "1"]) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told(number: signal.Signals) -> None:
    with serving(files({"/metrics": metrics()})) as url:
        command = [sys.executable, "-m", "vramledger", "watch", "--url", url, "--json"]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["kind"] == "moment"
                process.send_signal(number)
                _, err = process.communicate(timeout=60)
            finally:
                process.kill()
    assert (process.returncode, err) == (0, "")
