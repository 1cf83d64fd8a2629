"""Asks a vLLM installation to schedule the cases, in a process of its own Python."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.conformance.engine import python_of
from tools.fidelity.vllm_scheduler.cases import Case

PROBE = Path(__file__).resolve().parent / "probe.py"


def ask(venv: Path, cases: Sequence[Case], *, sources: Path | None = None) -> Iterator[dict[str, Any]]:
    """First {"ready": version}, then one answer a case. Raises SystemExit where vLLM cannot be imported.

    `sources` is a folder with another release's package `vllm`, taken in place of the installed one: a scheduler is plain Python.
    """
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch) / "cases.json"
        asked.write_text(json.dumps(list(cases)), encoding="utf-8")
        with subprocess.Popen(
            [str(python_of(venv)), str(PROBE), str(asked)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(sources.resolve()) if sources else ""},
        ) as process:
            assert process.stdout is not None
            answers = 0
            for line in process.stdout:
                if line.startswith("{"):
                    answers += 1
                    yield json.loads(line)
        if answers <= len(cases):
            raise SystemExit(
                f"{python_of(venv)} answered {max(answers - 1, 0)} of {len(cases)} cases (exit code {process.returncode}): "
                "is vLLM installed there?"
            )
