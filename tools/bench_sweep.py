"""Time a sweep over a realistic grid: the rate of plans, by the wall and by the processors.

    python -m tools.bench_sweep [--plans 100000] [--jobs 2] [--out FILE.csv] [--check]

The budget is 100,000 plans in a minute on 2 cores, 1.2 ms of processor time for each plan. Processor time is what a
plan takes of whatever else runs on the machine; the wall is what a person waits. `--check` exits with 1 where the
processor time passes the budget.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from vramledger import load_model
from vramledger.report.table_file import write_table
from vramledger.search.grid import Grid
from vramledger.search.rows import Row
from vramledger.search.sweep import CHUNK, Work, chunks, over_processes

ROOT = Path(__file__).parents[1]
BUDGET_MS = 1.2
DEVICES = (
    "H100-80GB",
    "H200-141GB",
    "B200",
    "A100-80GB",
    "A100 SXM 40GB",
    "L40S",
    "L4",
    "RTX 4090",
    "MI300X",
    "T4",
)


def realistic_grid(models: int) -> Grid:
    """What a person who chooses hardware asks: every example model, ten devices, eight ways to cut it, four weight
    formats, two KV formats, seven contexts, four loads."""
    return Grid(
        models=models,
        weights=("stored", "fp8", "awq-int4", "nvfp4"),
        devices=DEVICES,
        tp=(1, 2, 4, 8),
        pp=(1, 2),
        kv=("auto", "fp8"),
        contexts=(4096, 8192, 16384, 32768, 65536, 98304, 131072),
        concurrency=(1, 8, 32, 128),
    )


def spread(points: int, plans: int) -> list[int]:
    """`plans` points in runs that are evenly apart, so that every model and device has its share; within a run
    neighbours stand together, as in a sweep."""
    runs = [range(start, min(start + CHUNK, points)) for start in range(0, points, CHUNK)]
    wanted = min(len(runs), -(-plans // CHUNK))
    kept = [runs[number * len(runs) // wanted] for number in range(wanted)]
    return [point for run in kept for point in run][:plans]


def processor_s() -> float:
    """Processor time of this process and of those it has ended."""
    parts = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()

    folders = sorted(path.parent for path in (ROOT / "examples").glob("*/config.json"))
    checkpoints = tuple(load_model(folder) for folder in folders)
    grid = realistic_grid(len(checkpoints))
    numbers = spread(len(grid), options.plans)
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; "
        f"{len(numbers):,} of {len(grid):,} points of {len(checkpoints)} models, {options.jobs} processes"
    )
    statuses: Counter[str] = Counter()

    def counted(parts: Iterable[list[Row]]) -> Iterator[list[Row]]:
        for rows in parts:
            statuses.update(row.status for row in rows)
            yield rows

    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch) / "plans.csv"
        wall, used = time.perf_counter(), processor_s()
        run = over_processes(options.jobs)
        write_table(out, counted(run(Work(grid=grid, checkpoints=checkpoints), chunks(numbers))))
        wall, used = time.perf_counter() - wall, processor_s() - used
        size = out.stat().st_size
    each_ms = used / len(numbers) * 1e3
    print(", ".join(f"{count:,} {status}" for status, count in statuses.most_common()))
    print(f"wall {wall:.1f} s, {len(numbers) / wall:,.0f} plans a second; table {size / 1e6:.1f} MB")
    print(f"processor {used:.1f} s, {each_ms:.3f} ms a plan (budget {BUDGET_MS})")
    print(f"100,000 plans on 2 cores: {each_ms * 50:.1f} s of processor time (budget 60)")
    return 1 if options.check and each_ms > BUDGET_MS else 0


if __name__ == "__main__":
    sys.exit(main())
