"""Cases with what an engine's scheduler did, as kept for tests without that engine: one JSON line a case, packed."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.fidelity.vllm_scheduler.cases import Case


def write(path: Path, recorded: Iterable[tuple[Case, list[Any]]]) -> None:
    """Writes cases with their compact steps; the same cases give the same bytes."""
    text = "".join(
        json.dumps({"case": case, "steps": steps}, separators=(",", ":")) + "\n" for case, steps in recorded
    )
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(text.encode())
    path.write_bytes(packed.getvalue())


def read(path: Path) -> Iterator[tuple[Case, list[Any]]]:
    """What `write` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            yield entry["case"], entry["steps"]
