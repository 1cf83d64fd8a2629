"""Requests simulated a second, on one core after warm-up, and peak memory; beside ai-dynamo-runtime's own replay of the same trace.

    python -m tools.bench_simulation [--many 10000000] [--other VENV] [--runs 5]

The engine is vLLM with Llama-3.1-8B on an H100 80 GB: 27,000 blocks of 16 tokens, 256 sequences, 8,192 tokens a step, prefix caching,
chunked prefill; and the same with so few blocks and so much load that requests are preempted. Every row is a process of its
own. Seconds are those of the clock and, behind them, of the processor, which other work on the machine does not touch. --other names a
virtual environment with `ai-dynamo-runtime` (1.6.1 measured); without it that row is skipped. --many streams made-up requests
in and outcomes out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.outcome_columns import OutcomeColumns
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columns import BATCH, RequestColumns, Workload, columns_with
from vramledger.workload.request import WorkloadHeader

ROOT = Path(__file__).parents[1]
AZURE = ROOT / "data" / "traces" / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv.gz"
SETTINGS = SimulationSettings(
    layout=PoolLayout(num_blocks=27_001, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1),
    scheduler=SchedulerSettings(max_num_seqs=256, max_num_batched_tokens=8_192, max_model_len=131_072),
    step=StepModel(
        overhead_ps=1_500_000_000,
        floor_ps=5_000_000_000,
        token_ps=20_000_000,
        decode_seq_ps=1_000_000,
        kv_token_ps=40_000,
        pair_ps_per_1024=20_000,
        evidence=assumed("of the order of an 8B model on an H100: 16 GB read a step, 1 PFLOP/s"),
    ),
)
OTHER_CODE = """
import json, resource, sys, time
from dynamo import _core
path, settings, runs = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
best = []
for _ in range(runs):
    wall, cpu = time.perf_counter(), time.process_time()
    _core.run_mocker_trace_replay([path], extra_engine_args=settings, trace_block_size=512, capture_planner_details=False)
    best.append((time.perf_counter() - wall, time.process_time() - cpu))
print(json.dumps({"wall": min(b[0] for b in best), "cpu": min(b[1] for b in best),
                  "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


def tight(workload: Workload, speedup: int) -> tuple[Workload, SimulationSettings]:
    """The trace at several times its pace over a pool that is too small for it."""
    table = workload.table()
    faster = table._replace(arrival_ns=table.arrival_ns // speedup)
    return Workload.of(workload.header, faster), replace(
        SETTINGS, layout=replace(SETTINGS.layout, num_blocks=4_001)
    )


def made_up(count: int) -> Workload:
    """Requests of a chat service at 12 a second, made batch by batch: any number takes the room of one."""

    def batches() -> Iterator[RequestColumns]:
        random = np.random.default_rng(1)
        start_ns = 0
        for first in range(0, count, BATCH):
            rows = min(BATCH, count - first)
            arrivals = start_ns + np.cumsum(random.exponential(1e9 / 12, rows)).astype(np.int64)
            start_ns = int(arrivals[-1])
            yield columns_with(
                arrival_ns=arrivals,
                prompt_tokens=np.clip(random.lognormal(6.5, 1.0, rows), 1, 16_000).astype(np.int64),
                output_tokens=np.clip(random.lognormal(5.0, 0.8, rows), 1, 4_000).astype(np.int64),
            )

    return Workload(WorkloadHeader(name="made up", source="this tool"), batches)


def run_row(name: str, runs: int, many: int) -> dict[str, Any]:
    """One row's figures, in this process."""
    settings, read_s = SETTINGS, 0.0
    if name == "many":
        workload, runs = made_up(many), 1
        simulate(made_up(2), settings, how="compiled")
    else:
        start = time.perf_counter()
        workload = Workload.of(WorkloadHeader(name="azure", source=str(AZURE)), read_workload(AZURE).table())
        read_s = time.perf_counter() - start
        if name == "tight":
            workload, settings = tight(workload, 3)
        simulate(workload, settings, how="compiled")
    timed, told = [], [0]

    def sink(outcomes: OutcomeColumns) -> None:
        told[0] += len(outcomes.number)

    for _ in range(runs):
        told[0] = 0
        wall, cpu = time.perf_counter(), time.process_time()
        run, _ = simulate(workload, settings, how="compiled", sink=sink)
        timed.append((time.perf_counter() - wall, time.process_time() - cpu))
    counters = run.counters[0]
    return {
        "requests": told[0], "read": read_s, "wall": min(row[0] for row in timed), "cpu": min(row[1] for row in timed),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "steps": counters.steps, "preemptions": counters.preemptions,
    }  # fmt: skip


def child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One row's figures, from a process of its own; machine code is made beforehand."""
    command = [sys.executable, "-m", "tools.bench_simulation", "--row", name, "--runs", str(options.runs)]
    done = subprocess.run(
        [*command, "--many", str(options.many)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def other(options: argparse.Namespace, requests: RequestColumns) -> dict[str, Any] | None:
    """The other program's figures for the same trace, pool and limits, or None where it is not installed."""
    python = Path(options.other) / "bin" / "python"
    if not options.other or not python.exists():
        return None
    scheduler, layout = SETTINGS.scheduler, SETTINGS.layout
    engine = {
        "backend": "vllm",
        "num_gpu_blocks": layout.usable_blocks,
        "block_size": layout.groups[0].block_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "max_model_len": None,
    }
    settings = {"engine": engine, "num_gpu_blocks_is_explicit": True}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        write_mooncake(requests, trace)
        command = [str(python), "-c", OTHER_CODE, str(trace), json.dumps(settings), str(options.runs)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"requests": requests.rows}


def write_mooncake(requests: RequestColumns, path: Path) -> None:
    """Requests that share nothing, as lines of a Mooncake trace with ids of 512 tokens."""
    first = 0
    with path.open("w", encoding="utf-8") as file:
        for request in requests.requests():
            ids = -(-request.prompt_tokens // 512)
            line = {
                "timestamp": request.arrival_ns / 1e6,
                "input_length": request.prompt_tokens,
                "output_length": request.output_tokens,
                "hash_ids": list(range(first, first + ids)),
            }
            first += ids
            file.write(json.dumps(line) + "\n")


def show(name: str, row: dict[str, Any]) -> None:
    rest = f"{row['steps']:>11,} steps {row['preemptions']:>7,} preemptions" if "steps" in row else ""
    print(
        f"{name:<44}{row['requests'] / row['wall']:>11,.0f} requests/s ({row['requests'] / row['cpu']:,.0f} by processor time)"
        f"{row['peak'] / 1024:>6.0f} MiB{rest}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--other", default=os.environ.get("DYNAMO_VENV", ".dynamo"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(run_row(options.row, options.runs, options.many)))
        return 0
    start = time.perf_counter()
    simulate(made_up(2), SETTINGS, how="compiled")
    print(f"machine code made or loaded in {time.perf_counter() - start:.1f} s")
    ours = child("azure", options)
    print(f"Azure conversation trace, {ours['requests']:,} requests, read in {ours['read'] * 1e3:.0f} ms")
    show("  simulated", ours)
    show("  three times as fast over 4,000 blocks", child("tight", options))
    theirs = other(options, read_workload(AZURE).table())
    if theirs is None:
        print("  ai-dynamo-runtime: skipped, --other names no virtual environment that has it")
    else:
        show("  ai-dynamo-runtime, with reading its file", theirs)
        whole = ours | {"wall": ours["wall"] + ours["read"]}
        print(
            f"  ratio: {theirs['wall'] / ours['wall']:.0f} ({theirs['cpu'] / ours['cpu']:.0f} by processor time); "
            f"with reading the file {theirs['wall'] / whole['wall']:.0f}"
        )
    if options.many:
        show(f"{options.many:,} requests streamed", child("many", options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
