"""Only what a gone experiment started is ended: a process is known by its id and by when it began."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from vramledger.experiment.left_over import Started, end_left_over, note_started
from vramledger.telemetry.probes.proc import is_alive, start_ticks

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, start_new_session=True) as running:
        yield running
        running.kill()


def noted(folder: Path, pid: int, *, began: int, owner_began: int) -> Path:
    path = folder / f".engine-{pid}.json"
    started = Started(pid=pid, start_ticks=began, owner_pid=os.getpid(), owner_start_ticks=owner_began)
    path.write_bytes(msgspec.json.encode(started))
    return path


def began(pid: int) -> int:
    found = start_ticks(pid)
    assert found is not None
    return found


def test_what_a_gone_owner_started_is_ended(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    # This test's own id, but not this process: the owner that had it is gone.
    path = noted(tmp_path, process.pid, began=began(process.pid), owner_began=1)
    assert end_left_over(tmp_path) == 1
    assert not is_alive(process.pid)
    assert not path.exists()


def test_what_a_living_owner_started_is_left(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    path = note_started(tmp_path, process.pid)
    assert path is not None
    assert end_left_over(tmp_path) == 0
    assert is_alive(process.pid)
    assert path.exists()


def test_another_process_that_got_the_id_is_left(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    path = noted(tmp_path, process.pid, began=began(process.pid) - 1, owner_began=1)
    assert end_left_over(tmp_path) == 0
    assert is_alive(process.pid)
    assert not path.exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"pid":1,"start_ticks":1,"owner_pid":2,"owner_start_ticks":3}']
)
def test_files_that_are_no_such_notes_end_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".engine-1.json"
    path.write_text(text, encoding="utf-8")
    assert end_left_over(tmp_path) == 0
    assert path.exists()
