"""Simulated runs against measured ones.

    python -m tools.fidelity [--data DIR] [--vllm-venv DIR] [--json FILE] [--page FILE] [--steps DIR] [--worst N] [--jobs N]

DIR holds a folder for each run (data/traces/vllm-measured-runs/README.md). Prints the worst figures, then for each run the KV
pool, latencies measured and simulated, counters and the pool over time. With a vLLM installation random workloads are
also run step by step through its own scheduler.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from tools.fidelity.curves import curve_error, curves, picture
from tools.fidelity.page import SCHEDULER_HEADING, page
from tools.fidelity.pools import planned, pool_check
from tools.fidelity.replay import replay
from tools.fidelity.runs import MeasuredRun, measured_runs
from tools.fidelity.tables import Report, missed_aims, text

from vramledger.errors import VramledgerError
from vramledger.simulation.step_file import step_json

HERE = Path(__file__).resolve().parents[2]
NO_VLLM = "Not run here: `make fidelity VLLM_VENV=DIR` compares with the scheduler of a vLLM installation."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=HERE / "data" / "traces" / "vllm-measured-runs")
    parser.add_argument("--vllm-venv", type=Path, help="a vLLM installation, whose scheduler is asked too")
    parser.add_argument("--cases", type=int, default=120, help="random workloads for vLLM's scheduler")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--page", type=Path, help="write the page as Markdown here, its pictures beside it")
    parser.add_argument(
        "--steps", type=Path, help="write the fitted step models here, as --step-model takes them"
    )
    parser.add_argument("--worst", type=int, default=10, help="worst figures shown")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    options = parser.parse_args(arguments)
    try:
        runs = measured_runs(options.data)
        made = _reports(runs, options.jobs)
    except VramledgerError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    reports = [report for report, _ in made]
    print(text(reports, worst=options.worst))
    words, failures = _scheduler(options.vllm_venv, options.cases)
    print(f"\nvLLM's own scheduler: {words or NO_VLLM}")
    if options.page is not None:
        for report, drawn in made:
            (options.page.parent / report.picture).write_text(drawn, encoding="utf-8")
        options.page.write_text(
            page(reports, words or scheduler_words(options.page) or NO_VLLM), encoding="utf-8"
        )
    if options.steps is not None:
        options.steps.mkdir(parents=True, exist_ok=True)
        for report in reports:
            (options.steps / f"{report.name}.json").write_bytes(step_json(report.replay.step))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_bytes(
            msgspec.json.format(msgspec.json.encode(_document(reports, words or NO_VLLM)), indent=1)
        )
    outside = any(report.pool.is_inside is False for report in reports)
    return 1 if failures or outside or missed_aims(reports) else 0


def _reports(runs: list[MeasuredRun], jobs: int) -> list[tuple[Report, str]]:
    if min(jobs, len(runs)) < 2:
        return [report_of(run) for run in runs]
    with ProcessPoolExecutor(max_workers=min(jobs, len(runs))) as pool:
        return list(pool.map(report_of, runs))


def report_of(run: MeasuredRun) -> tuple[Report, str]:
    """One run's results, and its picture."""
    plan = planned(run)
    made = replay(run, plan)
    drawn = curves(run, made)
    return (
        Report(
            name=run.name,
            model=run.model,
            device=plan.device.name,
            engine_version=run.engine_version,
            pool=pool_check(run, plan),
            replay=made,
            curves=tuple(curve_error(curve) for curve in drawn),
            published=run.published,
            picture=f"fidelity-{run.name}.svg",
        ),
        picture(f"{run.name}: the pool and the queues", drawn) if drawn else "",
    )


def _scheduler(venv: Path | None, cases: int) -> tuple[str, int]:
    """What the step-by-step comparison says, and how many workloads differ."""
    if venv is None or not venv.is_dir():
        return "", 0
    from tools.fidelity.vllm_scheduler.__main__ import compared

    line, failures, _ = compared(venv, cases)
    return line, failures


def scheduler_words(page_file: Path) -> str:
    """What the page said of vLLM's scheduler when it was last asked, "" where it says nothing."""
    if not page_file.is_file():
        return ""
    _, _, rest = page_file.read_text(encoding="utf-8").partition(f"{SCHEDULER_HEADING}\n\n")
    words = rest.partition("\n")[0]
    return "" if words == NO_VLLM else words


def _document(reports: list[Report], scheduler: str) -> dict[str, object]:
    """Every figure; the pool's samples are left out."""
    runs = []
    for report in reports:
        plain = msgspec.to_builtins(report)
        del plain["replay"]["samples"]
        for key in ("parts", "roofline"):
            for part, shown in zip(getattr(report.replay, key), plain["replay"][key], strict=True):
                for figure, row in zip(part.figures, shown["figures"], strict=True):
                    row["percent"] = figure.percent
        runs.append(plain)
    return {"runs": runs, "vllm_scheduler": scheduler}


if __name__ == "__main__":
    sys.exit(main())
