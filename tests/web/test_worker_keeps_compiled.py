"""A worker is confined, and still keeps the code that it compiled for the next one: a new worker is started for each long command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from web_page import ROOT

pytest.importorskip("numba")
LINE = ["simulate", "builtin:Qwen3-0.6B", "--device=L4", "--max-model-len=8K", "--workload=builtin:azure-chat", "--requests=20", "--how=compiled", "--json"]  # fmt: skip


@pytest.mark.timeout(900)
def test_what_one_worker_compiled_another_finds(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    caches = tmp_path / "caches"

    def answer() -> dict[str, Any]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(caches)}
        done = subprocess.run(
            [sys.executable, "-m", "vramledger.cli.worker", str(uploads)],
            input=json.dumps(LINE) + "\n", env=environment, capture_output=True, text=True, check=True, timeout=600,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert found["exit_code"] == 0, found
        return found

    def kept() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in caches.rglob("*.nbc")}

    first = answer()
    after_one = kept()
    assert after_one
    assert answer()["out"] == first["out"]
    assert kept() == after_one
