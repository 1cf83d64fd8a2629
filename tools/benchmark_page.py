"""Write docs/benchmarks.md: what questions cost, as ratios of processor time measured in one run.

    python -m tools.benchmark_page              measures (two minutes) and writes page and figures
    python -m tools.benchmark_page --figures    writes the page from the figures that are there

Seconds belong to a machine; a ratio to something that everybody has (an interpreter that starts, a loop over the lines of a file, a loop of a
million additions) says as much on another. Processor time is what the work took, whatever else ran.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct, convert, to_builtins
from tools.bench import EXAMPLES, FIRST, environment
from tools.ranks import nearest_rank
from tools.reference.markdown import table

from tools import bench_admission, bench_logs, bench_simulation
from vramledger import find_device, load_model, plan
from vramledger.admission.settings import Reservation
from vramledger.simulation.run import simulate

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES = ROOT / "docs" / "benchmarks.json"
START = "starts of Python (`python -c pass`)"
LOOP = "loops of a million additions in Python"
LINES = "times `for line in file` over the same log"

_TEXT = """# Benchmarks

What a question costs, as ratios measured in one run of `python -m tools.benchmark_page` ({python}, {machine}); processor time, the best of several. On
your machine the seconds are others and the ratios about these. One {loop_name} took {loop_ms:.0f} ms here, and a start of Python {start_ms:.0f} ms.

How right the figures are is on other pages: [accuracy](accuracy.md), [fidelity](fidelity.md). `make bench`, `bench-sweep`, `bench-logs`, `bench-admission` and
`bench-simulation` tell single figures with their budgets; what the gateway adds to a request is in [the gateway](gateway.md#what-it-costs).
"""


class Figure(Struct, frozen=True, kw_only=True):
    """`value` of `unit` that `what` takes; `group` is its heading."""

    group: str
    what: str
    value: float
    unit: str


class Figures(Struct, frozen=True, kw_only=True):
    """One run."""

    python: str
    machine: str
    loop_s: float
    start_s: float
    figures: tuple[Figure, ...]


def measured(*, rounds: int, log_megabytes: int, decisions: int) -> Figures:
    """Measure everything."""
    loop_s = min(_processor_s(_million_additions) for _ in range(max(3, rounds)))
    start_s = _process_s(["-c", "pass"], rounds)
    return Figures(
        python=f"Python {platform.python_version()}",
        machine=platform.machine(),
        loop_s=loop_s,
        start_s=start_s,
        figures=(
            *_commands(start_s, rounds),
            *_plans(loop_s, rounds),
            *_simulations(loop_s, rounds),
            *_logs(log_megabytes),
            *_decisions(loop_s, rounds, decisions),
        ),
    )


def page(run: Figures) -> str:
    """The page of one run."""
    head = _TEXT.format(
        python=run.python,
        machine=run.machine,
        loop_name="loop of a million additions",
        loop_ms=run.loop_s * 1e3,
        start_ms=run.start_s * 1e3,
    )
    groups: dict[tuple[str, str], list[Figure]] = {}
    for figure in run.figures:
        groups.setdefault((figure.group, figure.unit), []).append(figure)
    lines = [head]
    for (group, unit), figures in groups.items():
        lines += [f"## {group}", "", f"In {unit}.", ""]
        lines += table(("what", "ratio"), [(figure.what, _two_digits(figure.value)) for figure in figures])
        lines.append("")
    return "\n".join(lines)


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


def _million_additions() -> None:
    total = 0
    for number in range(1_000_000):
        total += number


def _processor_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _process_s(arguments: list[str], rounds: int) -> float:
    """The least processor time of a whole interpreter process."""
    best = float("inf")
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *arguments]
        subprocess.run(command, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


def _commands(start_s: float, rounds: int) -> Iterator[Figure]:
    model, device = str(FIRST), ("--device", "H100-80GB")
    for words in (
        ("--help",),
        ("plan", model, *device),
        ("plan", model, *device, "--json"),
        ("model", model),
    ):
        shown = " ".join("config.json" if word == model else word for word in words)
        seconds = _process_s(["-m", "vramledger", *words], rounds)
        yield Figure(
            group="Commands, from start to end",
            what=f"`vramledger {shown}`",
            value=seconds / start_s,
            unit=START,
        )


def _plans(loop_s: float, rounds: int) -> Iterator[Figure]:
    device = find_device("H200-141GB")
    for folder in sorted(path.parent for path in EXAMPLES.glob("*/config.json")):
        checkpoint = load_model(folder)
        tp = 8 if checkpoint.disk_bytes > device.total_bytes else 1

        def hundred(checkpoint: object = checkpoint, tp: int = tp) -> None:
            for _ in range(100):
                plan(checkpoint, device, tp=tp)  # type: ignore[arg-type]

        hundred()
        seconds = min(_processor_s(hundred) for _ in range(rounds))
        yield Figure(
            group="The same plan a hundred times in one process",
            what=f"{folder.name}, tp {tp}",
            value=seconds / loop_s,
            unit=LOOP,
        )


def _simulations(loop_s: float, rounds: int) -> Iterator[Figure]:
    simulate(bench_simulation.made_up(2), bench_simulation.SETTINGS, how="compiled")
    for name, what in (
        ("azure", "an hour of a chat service, {requests:,} requests"),
        ("tight", "the same three times as fast over a pool that is too small: {preemptions:,} preemptions"),
    ):
        command = [sys.executable, "-m", "tools.bench_simulation", "--row", name, "--runs", str(rounds)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        row = json.loads(done.stdout)
        yield Figure(
            group="Simulations, compiled", what=what.format(**row), value=row["cpu"] / loop_s, unit=LOOP
        )


def _logs(megabytes: int) -> Iterator[Figure]:
    said = {
        "service": "access lines, now and then what matters",
        "steps": "every batch told, sampled past the first 8 MiB",
        "prompts": "four lines in ten hold a prompt",
        "hits": "every line says something",
    }
    with tempfile.TemporaryDirectory() as folder:
        for row in bench_logs.results(Path(folder), megabytes):
            if row["way"] == bench_logs.ways()[-1]:
                value = 1 / float(str(row["share_of_plain_loop"]))
                yield Figure(group="Reading logs", what=said[str(row["log"])], value=value, unit=LINES)


def _decisions(loop_s: float, rounds: int, decisions: int) -> Iterator[Figure]:
    for reservation in Reservation:
        for running in (64, 1024):
            times = [
                bench_admission.measured(reservation, running, decisions)["decided"] for _ in range(rounds)
            ]
            nanoseconds = min(nearest_rank(found, 50) for found in times)
            yield Figure(
                group="A thousand admission decisions",
                what=f"{reservation.value}, {running:,} requests running",
                value=nanoseconds * 1000 / 1e9 / loop_s,
                unit=LOOP,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--figures", action="store_true", help="write the page from the figures that are there"
    )
    options = parser.parse_args()
    if not options.figures:
        run = measured(rounds=5, log_megabytes=128, decisions=1000)
        FIGURES.write_text(json.dumps(to_builtins(run), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(convert(json.loads(FIGURES.read_text(encoding="utf-8")), Figures)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
