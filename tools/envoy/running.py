"""Processors in processes of their own, to be asked and to be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
END_S = 60.0


class Processor:
    """`port` is where Envoy finds it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.port = int(self._line()["port"])

    def held(self) -> dict[str, Any]:
        """What it holds now, and how requests ended."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._line()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(END_S)

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the processor ended")
        return dict(json.loads(line))


@contextmanager
def processor(port: int = 0, most: int = 100_000, *, watch: bool = True) -> Iterator[Processor]:
    command = [
        sys.executable,
        "-m",
        "tools.envoy.processor",
        str(port),
        str(most),
        "watch" if watch else "pass",
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in (str(ROOT), *sys.path) if path)
    }
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Processor(process)
        finally:
            process.kill()
