"""One case: the model made, released by the command a user would type, and what its files say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct
from tools.real_engines.cases import Case, config_of, small_model
from tools.real_engines.models import make_model

LIMIT_S = 1800
ENDED = 15
READY = re.compile(r"ready after (\d+\.\d) s")
# torchvision's build for CUDA fails beside a CPU torch; the engine does without the three.
HIDDEN = ("torchvision", "torchaudio", "torchcodec")


class Figure(Struct, frozen=True, kw_only=True):
    """A line of the reconciliation; ranges as (low, high), None where it was not measured."""

    section: str
    name: str
    unit: str
    predicted: tuple[float, float] | None
    measured: tuple[float, float] | None
    standing: str


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of a case. `returned` tells whether KV came back after streams were dropped, None where it was not shown;
    `message` is what the command said where it wrote no reconciliation, `diagnosed` whether that held remedies."""

    case: Case
    version: str
    exit_code: int
    figures: tuple[Figure, ...] = ()
    returned: bool | None = None
    ready_s: float | None = None
    failed_requests: int = 0
    message: str = ""
    diagnosed: bool = False

    @property
    def wrong(self) -> str:
        """What should not be, "" where all is as it should."""
        if self.case.refused:
            return "" if self.exit_code == ENDED and self.diagnosed else "was to end and be diagnosed"
        if not self.figures:
            return "no release"
        outside = [figure.name for figure in self.figures if figure.standing == "outside"]
        if outside:
            return f"outside: {', '.join(outside)}"
        if self.failed_requests:
            return f"{self.failed_requests} requests failed"
        return "" if self.returned else "KV not shown to return"


def environment(venv: Path | None, scratch: Path) -> dict[str, str]:
    """What the command and the engine beneath it run with: the engine's programs first, nothing asked of the network."""
    hide = scratch / "hide"
    hide.mkdir(parents=True, exist_ok=True)
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in HIDDEN), ""]
    (hide / "sitecustomize.py").write_text("\n".join(lines), encoding="utf-8")
    path = os.environ.get("PATH", "")
    return {
        **os.environ,
        "PATH": path if venv is None else f"{(venv / 'bin').resolve()}{os.pathsep}{path}",
        "PYTHONPATH": os.pathsep.join([str(hide.resolve()), _source()]),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Workers of several ranks may share one node.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "COLUMNS": "100",
    }


def _source() -> str:
    import vramledger

    return str(Path(vramledger.__file__).resolve().parent.parent)


def run_case(case: Case, version: str, folder: Path, surroundings: dict[str, str]) -> Outcome:
    """Release it into `folder`, where the page is left as page.txt beside the release's own files."""
    folder.mkdir(parents=True, exist_ok=True)
    model = str(small_model())
    if case.kind:
        make_model(folder / "model", config_of(case.kind))
        model = "model"
    engine = f"{case.engine}=={version}" if version else case.engine
    command = [sys.executable, "-m", "vramledger", "release", model, "--engine", engine, *case.flags]
    done = subprocess.run(
        [*command, "-o", "out", "--policy", "warn"],
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    (folder / "page.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    return outcome_of(case, folder, done.returncode)


def outcome_of(case: Case, folder: Path, exit_code: int) -> Outcome:
    """Read the files of a release."""
    page = (folder / "page.txt").read_text(encoding="utf-8")
    if exit_code not in (0, 14):
        planned = (_read(folder / "out" / "plan.json") or {}).get("inputs", {})
        return Outcome(
            case=case,
            version=str(planned.get("engine_version", "")),
            exit_code=exit_code,
            message=page.strip(),
            diagnosed="would help" in page,
        )
    found = _read(folder / "out" / "reconciliation.json") or {}
    manifest = _read(folder / "out" / "manifest.json") or {}
    trials = [item for item in manifest["tests"] if item["name"] == "kv_returned_after_cancellation"]
    ready = READY.search(page)
    return Outcome(
        case=case,
        version=found["engine_version"],
        exit_code=exit_code,
        figures=tuple(
            Figure(
                section=item["section"],
                name=item["name"],
                unit=item["unit"],
                predicted=_range(item["predicted"]),
                measured=_range(item["measured"]),
                standing=item["standing"],
            )
            for item in found["lines"]
        ),
        returned=trials[-1]["passed"] if trials else None,
        ready_s=None if ready is None else float(ready[1]),
        failed_requests=sum(int(count) for count in re.findall(r"^  (\d+) requests?: ", page, re.MULTILINE)),
    )


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _range(value: dict[str, float] | None) -> tuple[float, float] | None:
    return None if value is None else (value["low"], value["high"])
