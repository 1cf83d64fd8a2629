"""Time what a person waits for, and say how it compares with the budgets.

    python -m tools.bench [--check] [--runs 15] [--no-headers] [--json FILE]

Whole processes are compared with `python -c pass` on the same machine. Bytecode is cached first, as an installed
package has it. `--check` exits with 1 where a budget is passed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, to_builtins

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
FIRST = EXAMPLES / "Llama-3.1-8B-Instruct" / "config.json"
LARGE = EXAMPLES / "DeepSeek-V3"
# The budgets were set where `python -c pass` takes this long.
REFERENCE_PASS_MS = 18.0

HEADERS_CODE = """
import resource, sys, time
from vramledger import load_model
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
checkpoint = load_model(sys.argv[1])
print(time.perf_counter() - start, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, checkpoint.disk_bytes)
"""


class Result(Struct, frozen=True, kw_only=True):
    """One figure. `budget` is in the same unit, None where there is none; `ratio` is to `python -c pass`."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    ratio: float | None = None

    @property
    def holds(self) -> bool:
        return self.budget is None or self.value <= self.budget


def environment() -> dict[str, str]:
    """This environment, with bytecode written beside the sources."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"COLUMNS": "80"}


def process_ms(arguments: list[str], runs: int, env: Mapping[str, str]) -> float:
    """Median wall time of a whole interpreter process, the first run apart."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], env=env, stdout=subprocess.DEVNULL, check=True)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[1:])


def processes(runs: int) -> Iterator[Result]:
    env = environment()
    nothing = process_ms(["-c", "pass"], runs, env)
    yield Result(name="python -c pass", value=nothing, unit="ms")
    command = ["-m", "vramledger"]
    device = ["--device", "H100-80GB"]
    for name, arguments, budget in (
        ("vramledger --help", ["--help"], 100.0),
        ("vramledger plan --help", ["plan", "--help"], 100.0),
        ("vramledger plan config.json", ["plan", str(FIRST), *device], 150.0),
        ("vramledger plan config.json --json", ["plan", str(FIRST), *device, "--json"], 150.0),
        ("vramledger model config.json", ["model", str(FIRST)], 150.0),
    ):
        value = process_ms([*command, *arguments], runs, env)
        yield Result(name=name, value=value, unit="ms", budget=budget, ratio=value / nothing)


def warm_plans() -> Iterator[Result]:
    """One `plan()` call of a process that has made one before; the best of five rounds."""
    from vramledger import find_device, load_model, plan

    device = find_device("H200-141GB")
    for folder in sorted(path.parent for path in EXAMPLES.glob("*/config.json")):
        checkpoint = load_model(folder)
        tp = 8 if checkpoint.disk_bytes > device.total_bytes else 1
        plan(checkpoint, device, tp=tp)
        best = min(timeit.repeat(lambda c=checkpoint, n=tp: plan(c, device, tp=n), number=20, repeat=5)) / 20  # type: ignore[misc]
        yield Result(name=f"plan({folder.name}, tp={tp})", value=best * 1e3, unit="ms", budget=1.0)


def headers(scratch: Path) -> Iterator[Result]:
    """Headers of a 700B model with its experts one by one, 200 MB of them."""
    made = scratch / "headers"
    tool = [
        sys.executable,
        "-m",
        "tools.make_headers",
        str(LARGE),
        str(made),
        "--fp8",
        "--split-experts",
        "16",
    ]
    env = environment()
    subprocess.run(tool, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    total = sum(_header_bytes(path) for path in made.glob("*.safetensors"))
    yield Result(name="headers of a 700B model", value=total / 1e6, unit="MB")
    done = subprocess.run(
        [sys.executable, "-c", HEADERS_CODE, str(made)], env=env, check=True, capture_output=True, text=True
    )
    seconds, before_kib, peak_kib, _ = (float(part) for part in done.stdout.split())
    yield Result(name="  read and compared", value=seconds, unit="s", budget=6.0)
    yield Result(name="  peak memory of the process", value=peak_kib / 1024, unit="MiB", budget=128.0)
    yield Result(name="  of which before reading", value=before_kib / 1024, unit="MiB")


def _header_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def show(result: Result) -> None:
    budget = "" if result.budget is None else f"budget {result.budget:g}"
    ratio = "" if result.ratio is None else f"{result.ratio:.1f} x pass"
    mark = "" if result.holds else "  OVER"
    print(
        f"{result.name:<40}{result.value:>10.2f} {result.unit:<4}{ratio:>12}  {budget}{mark}".rstrip(),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--no-headers", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    results = []
    with tempfile.TemporaryDirectory() as name:
        stages = [processes(options.runs), warm_plans()]
        if not options.no_headers:
            stages.append(headers(Path(name)))
        for stage in stages:
            for result in stage:
                show(result)
                results.append(result)
    print(f"Budgets of processes were set where `python -c pass` takes {REFERENCE_PASS_MS:g} ms.")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps([to_builtins(item) for item in results], indent=2), encoding="utf-8"
        )
    return 1 if options.check and not all(item.holds for item in results) else 0


if __name__ == "__main__":
    sys.exit(main())
