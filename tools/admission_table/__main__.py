"""Admission policies in front of simulated engines against the engines alone, by trace and load.

    python -m tools.admission_table [--traces azure,mooncake,agentic] [--loads 0.5,0.8,1,1.3,1.6,2] [--clients leave,stay]
        [--engines vllm,...] [--policies ...] [--part shown|chosen] [--jobs 2] [--page FILE] [--json FILE]

Writes a page of tables, or prints it. A line on stderr says how far it has come.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import msgspec
from tools.admission_table.bound import largest_goodput, least_costs
from tools.admission_table.cases import ALONE, DEFAULT, TRUE_LENGTHS, Case, capacity, figures
from tools.admission_table.page import Study, page
from tools.admission_table.scenes import BY_NAME, SCENES
from tools.admission_table.waits import wait_lines

from vramledger.admission.settings import Reservation
from vramledger.simulation.settings import Scheduling

LOADS = "0.5,0.8,1,1.3,1.6,2"
ENGINES = (
    Scheduling.VLLM,
    Scheduling.SGLANG,
    Scheduling.TRTLLM_NO_EVICT,
    Scheduling.TRTLLM_MAX_UTILIZATION,
    Scheduling.LLAMACPP,
)
FIRST = (ALONE, DEFAULT)
STAY_AT = (Scheduling.VLLM, Scheduling.LLAMACPP)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", default=",".join(scene.name for scene in SCENES))
    parser.add_argument("--loads", default=LOADS)
    parser.add_argument("--clients", default="leave,stay")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--policies", help="those in front of vLLM's rules; default: all")
    parser.add_argument("--part", choices=("shown", "chosen"), default="shown")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--page", type=Path, help="write the page here instead of printing it")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument(
        "--figures", type=Path, help="make the page of figures written before, and run nothing"
    )
    options = parser.parse_args(arguments)
    if options.figures is None:
        study = run(options)
    else:
        study = msgspec.json.decode(options.figures.read_bytes(), type=Study)
    text = page(study, wait_lines() if "agentic" in study.per_s else ())
    if options.json is not None:
        write(options.json, study)
    if options.page is None:
        print(text, end="")
    else:
        options.page.write_text(text, encoding="utf-8")
    return 0


def write(path: Path, study: Study) -> None:
    """All figures so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(study)))


def run(options: argparse.Namespace) -> Study:
    """Everything that was asked for, over processes."""
    scenes = [BY_NAME[name] for name in options.traces.split(",")]
    parts = {scene.name: scene.shown if options.part == "shown" else scene.chosen_on for scene in scenes}
    loads = [float(load) for load in options.loads.split(",")]
    with ProcessPoolExecutor(options.jobs) as workers:
        rates = workers.map(capacity, parts, parts.values())
        per_s = dict(zip(parts, rates, strict=True))
        bounds = {}
        for scene in scenes:
            costs = least_costs(scene.name, parts[scene.name])
            bounds[scene.name] = {load: largest_goodput(costs, load * per_s[scene.name]) for load in loads}
        cases = [
            Case(
                scene=scene.name,
                part=parts[scene.name],
                scheduling=scheduling,
                policy=policy,
                load=load,
                per_s=per_s[scene.name],
                stays=clients == "stay",
            )
            for scene, clients in product(scenes, options.clients.split(","))
            for scheduling, policy in contenders(options, stays=clients == "stay")
            for load in loads
        ]
        cases.sort(key=lambda case: (case.policy not in FIRST, case.scheduling is not Scheduling.VLLM))
        found = []
        for case, one in zip(cases, workers.map(figures, cases), strict=True):
            found.append((case, one))
            print(f"\r{len(found)} of {len(cases)} runs", end="", file=sys.stderr, flush=True)
            if options.json is not None and len(found) % 10 == 0:
                write(options.json, Study(cases=tuple(found), per_s=per_s, bounds=bounds))
    print(file=sys.stderr)
    return Study(cases=tuple(found), per_s=per_s, bounds=bounds)


def contenders(options: argparse.Namespace, *, stays: bool) -> Iterator[tuple[Scheduling, str]]:
    """For clients that leave every engine alone and with its default, and every policy in front of vLLM's rules; for clients that stay some."""
    every = [ALONE, *(one.value for one in Reservation), DEFAULT, TRUE_LENGTHS]
    for scheduling in map(Scheduling, options.engines.split(",")):
        if stays and scheduling not in STAY_AT:
            continue
        policies = every if scheduling is Scheduling.VLLM and not stays else [ALONE, DEFAULT]
        if options.policies is not None:
            policies = [one for one in policies if one in options.policies.split(",")]
        for policy in policies:
            yield scheduling, policy


if __name__ == "__main__":
    sys.exit(main())
