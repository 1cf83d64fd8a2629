"""A release's new wording is found before its users' logs are misread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.log_wordings import main, wordings

SOURCE = """
logger = init_logger(__name__)

def load(self):
    logger.info_once("Model loading took %s GiB memory and %.6f seconds", size, time)
    logger.debug("Available KV cache memory: %s GiB", format_gib(size))
    msg = (f"Free memory on device ({GiB(free)} GiB) has a new wording, "
           f"{GiB(used)} GiB used")
    logger.info(msg)
    logger.warning("CUDA graph is not supported for %s yet", name)
    logger.info("KV cache is warm")
    print("KV cache memory: %s" % size)

class MemorySnapshot:
    def __repr__(self):
        return (f"torch_peak={format_gib(a)}GiB, free_memory={format_gib(b)}GiB, total_memory={format_gib(c)}GiB, "
                f"{name}_memory={format_gib(d)}GiB, torch_memory={format_gib(e)}GiB, non_torch_memory={format_gib(f)}GiB")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "0.99.0" / "vllm" / "v1"
    package.mkdir(parents=True)
    (package / "worker.py").write_text(SOURCE)
    (package / "broken.py").write_text("logger.info('KV cache %d', (")
    tests = tmp_path / "0.99.0" / "vllm" / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text('logger.info("KV cache memory of a test: %d", 1)')
    return tmp_path / "0.99.0"


def test_what_no_pattern_reads_is_listed_with_its_place(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tree)]) == 1
    printed = capsys.readouterr().out
    assert "info: Free memory on device (<s> GiB) has a new wording, <s> GiB used" in printed
    assert "0.99.0:v1/worker.py:9" in printed
    assert "3 lines read in 1 tree(s), 1 wordings left" in printed


def test_calls_are_found_in_their_functions_once(tree: Path) -> None:
    found = [(item.level, item.text[:30]) for item in wordings(tree / "vllm")]
    assert len(found) == len(set(found)) == 6


def test_what_is_read_is_recorded(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "read.jsonl"
    main([str(tree), "--record", str(target)])
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["event"] for row in rows] == ["weights", "kv_budget", "memory"]
    assert all(row["releases"] == ["0.99.0"] for row in rows)
    assert rows[0]["values"]["elapsed_s"] == 12.25
