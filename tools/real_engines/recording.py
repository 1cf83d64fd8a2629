"""What the ordinary tests keep of a run: outcomes, and the lines of a log that say something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace
from tools.real_engines.running import Outcome

from vramledger.telemetry.evidence_files import collect

# Processes' numbers, and where the engine is installed.
NUMBER = re.compile(r"pid=\d+")
SITE = re.compile(r"/[^\s\"']{1,200}/site-packages/")


def record(folder: Path, outcome: Outcome, log: Path) -> None:
    """Write the outcome, without what differs from run to run, and the excerpt of its log."""
    folder.mkdir(parents=True, exist_ok=True)
    name = name_of(outcome)
    kept = replace(outcome, ready_s=None, message="refused" if outcome.message else "")
    raw = msgspec.json.format(msgspec.json.encode(kept), indent=1)
    (folder / f"{name}.json").write_bytes(raw + b"\n")
    with (folder / f"{name}.log").open("w", encoding="utf-8", newline="\n") as file:
        file.write(excerpt(log))


def excerpt(log: Path) -> str:
    """The lines that are read as something, in order."""
    wanted = {item.place.line for item in collect([str(log)]).observations}
    # A progress bar's carriage returns end no line.
    with log.open(encoding="utf-8", errors="replace", newline="\n") as file:
        kept = [line for number, line in enumerate(file, 1) if number in wanted]
    return SITE.sub("", NUMBER.sub("pid=1", "".join(kept)))


def recorded(folder: Path) -> Iterator[Outcome]:
    """Outcomes of earlier runs, in the order of the cases."""
    for path in sorted(folder.glob("*.json")):
        yield msgspec.json.decode(path.read_bytes(), type=Outcome)


def name_of(outcome: Outcome) -> str:
    """A file's name for an outcome."""
    return re.sub(r"[^a-z0-9.]+", "-", f"{outcome.case.engine}-{outcome.case.name}".lower())
