"""A worker is confined, and still keeps the code that it compiled for the next one: a new worker is started for each long command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from web_page import ROOT

pytest.importorskip("numba")
FUNCTION = """
from vramledger.simulation.compiled.jit import entry

@entry
def more(value):
    return value + 1
"""
RUN = """
import sys
from pathlib import Path
from vramledger.cli.worker import confine
uploads = Path(sys.argv[1])
sys.path.insert(0, str(uploads))
confine([uploads])
from function import more
assert more(1) == 2
print(sum(more.stats.cache_hits.values()), sum(more.stats.cache_misses.values()))
"""


@pytest.mark.timeout(600)
def test_what_one_worker_compiled_another_finds(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    (uploads / "function.py").write_text(FUNCTION)
    caches = tmp_path / "caches"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(caches)}

    def found_and_made() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(uploads)],
            env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert found_and_made() == ["0", "1"]
    assert list(caches.rglob("*.nbc"))
    assert found_and_made() == ["1", "0"]
