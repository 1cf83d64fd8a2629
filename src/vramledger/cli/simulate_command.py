"""`vramledger simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vramledger.cli.html_page import html_option, write_answer
from vramledger.cli.load_options import FLEET, file_option, how_option, load_arguments
from vramledger.cli.options import EngineCommand, GroupedOption, exit_zero_option, json_option
from vramledger.cli.workload_options import take_reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramledger.cli.load_setup import Setup
    from vramledger.cli.load_workload import Sent
    from vramledger.report.simulation_document import Simulation, SimulationDocument
    from vramledger.report.text import Line
    from vramledger.simulation.tool_waits import ToolWaitRow
    from vramledger.workload.columns import Workload

REQUESTS = 10_000
CHOICES = ("default", "throughput", "no-failure", "no-evict", "quantile", "risk", "optimistic")
"""The names of `simulation.admission.Choice`, which is not loaded for a command's help."""

_HELP = """Simulate a workload on the KV pool that a plan leaves: latencies, goodput over all offered requests, the pool over time,
preemptions, and how near each way to run out of memory is.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`); without one, give
--plan, --manifest or --blocks. How long a step takes comes from --step-model, else from a roofline of the device (assumed)."""

_EPILOG = """\b
Examples:
  vramledger simulate ./model --device H100-80GB --max-model-len 16K --workload trace.csv
  vramledger simulate ./model --device H100-80GB --workload trace.csv --scale-time 0.25 --slo-ttft-ms 1000 --slo-tpot-ms 50
  vramledger simulate ./model --device L40S --workload cohorts.toml --rate 4 --requests 20000 --picture pool.svg
  vramledger simulate ./model --device L40S --workload trace.csv --slo-ttft-ms 2000 --admission default
  vramledger simulate builtin:Llama-3.1-8B-Instruct --device L40S --max-model-len 16K --workload builtin:azure-chat --html load.html
  vramledger simulate --blocks 27889 --block-size 16 --max-model-len 16K --max-num-seqs 256 \\
    --max-num-batched-tokens 2048 --step-model step.json --workload trace.jsonl --output run/

\b
Exit codes: 0 served as asked, 15 goodput below --goodput, 16 requests that never fit, 17 livelock (0 with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_simulate(
    model: str | None,
    *,
    workload: str,
    requests: int | None,
    rate: float | None,
    seed: int,
    goodput: float,
    how: str,
    admission: str | None,
    compare: bool,
    output: str | None,
    picture: str | None,
    html_file: str | None,
    as_json: bool,
    exit_zero: bool,
    **options: Any,
) -> int:
    """Set up, replay, print, and turn what was found into an exit code."""
    from msgspec.structs import replace

    from vramledger.cli.document_files import check_out
    from vramledger.cli.exit_codes import simulation_code
    from vramledger.cli.load_setup import asked_of, setup_of
    from vramledger.cli.load_workload import sent_by
    from vramledger.cli.output import page_width
    from vramledger.cli.termination import ends_when_told

    reading = take_reading(options)
    asked = asked_of({"model": model, **options})
    for flag, name in (("--picture", picture), ("--html", html_file)):
        check_out(name, (workload, *asked.sources), flag=flag)
    setup = setup_of(asked, follow_parents=reading["follow_parents"])
    sent = sent_by(workload, reading, requests=requests, otherwise=REQUESTS, rate=rate, seed=seed)
    with ends_when_told():
        found = _simulated(
            setup, sent, seed=seed, goodput=goodput, how=how, output=output, admission=admission
        )
    if compare:
        found = replace(found, tool_waits=_compared(setup, sent.workloads[0]))
    if picture is not None:
        from vramledger.cli.pictures import draw
        from vramledger.report.simulation_picture import simulation_svg

        draw(picture, simulation_svg(found))

    def document() -> SimulationDocument:
        from vramledger.report.simulation_document import simulation_document

        return simulation_document(found)

    def lines() -> Iterable[Line]:
        from vramledger.report.simulation_text import simulation_lines

        return simulation_lines(found, width=page_width())

    write_answer("simulate", html_file=html_file, as_json=as_json, document=document, lines=lines)
    requests_found = found.summary.all
    return simulation_code(
        never_fits=requests_found.never_fits,
        livelocked=requests_found.livelocked,
        is_met=requests_found.goodput >= goodput,
        exit_zero=exit_zero,
    )


def _simulated(
    setup: Setup,
    sent: Sent,
    *,
    seed: int,
    goodput: float,
    how: str,
    output: str | None,
    admission: str | None,
) -> Simulation:
    """One run, its outcomes summed up (and written) as they come."""
    from contextlib import ExitStack

    from vramledger.cli.progress import COMPILING, Requests
    from vramledger.report.load_conditions import Conditions
    from vramledger.report.outcome_files import OutcomeFiles
    from vramledger.report.simulation_document import Simulation
    from vramledger.simulation.admission import Choice, Fronts
    from vramledger.simulation.findings import findings, stalls
    from vramledger.simulation.measures import Summariser, Tenants
    from vramledger.simulation.outcome_columns import OutcomeColumns
    from vramledger.simulation.run import simulate
    from vramledger.simulation.summary import pool_summary

    settings, workload = setup.settings, sent.workloads[0]
    fronts = None if admission is None else Fronts(Choice(admission), settings)
    made = Summariser(settings.slo, workload.header.tenants)
    # A second pass through the workload, for those that have several tenants.
    tenants = Tenants(workload) if len(workload.header.tenants) > 1 else None
    with ExitStack() as stack:
        files = None if output is None else stack.enter_context(OutcomeFiles(output))
        progress = stack.enter_context(Requests())
        progress.begin(COMPILING)

        def take(outcomes: OutcomeColumns) -> None:
            made.add(outcomes, None if tenants is None else tenants.next(len(outcomes.number)))
            if files is not None:
                files.add(outcomes)

        run, _ = simulate(
            workload,
            settings,
            how=how,  # type: ignore[arg-type]
            sink=take,
            progress=progress.done,
            policies=fronts,
        )
        if files is not None:
            files.end(run)
    summary = made.summary()
    pool = pool_summary(run.samples, settings.layout)
    return Simulation(
        conditions=Conditions(
            settings=settings,
            header=workload.header,
            pool_from=setup.pool_from,
            plan=setup.plan,
            requests=summary.all.offered,
            arrival_scale=sent.arrival_scale,
            seed=seed,
            goodput=goodput,
        ),
        summary=summary,
        pool=pool,
        run=run,
        findings=findings(run, settings, summary.all, pool, setup.plan),
        never_served=stalls(summary.all, settings, pool),
        admission=None if fronts is None else fronts.counts(),
    )


def _compared(setup: Setup, workload: Workload) -> tuple[ToolWaitRow, ...]:
    """Ways to treat KV between turns, with the model's own FLOPs where it is known."""
    from vramledger.simulation.roofline import recompute_flops
    from vramledger.simulation.tool_waits import compare_tool_waits

    flops = (0, 0) if setup.checkpoint is None else recompute_flops(setup.checkpoint.model)
    return compare_tool_waits(workload, setup.settings, flops_per_token=flops[0], flops_per_pair=flops[1])


command = EngineCommand(
    "simulate",
    callback=run_simulate,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        *load_arguments(REQUESTS),
        how_option(),
        GroupedOption(
            ["admission", "--admission"],
            type=click.Choice(CHOICES),
            help="Put an admission policy in front of the engine's queue: the engine's default (for deadlines, throughput or no failure), or one that "
            "reserves so much output. --slo-ttft-ms and --slo-latency-ms are its deadlines. The readable simulator runs it.",
            group=FLEET,
        ),
        GroupedOption(
            ["compare", "--compare-tool-waits"],
            is_flag=True,
            help="Compare what keeping, swapping and dropping KV between turns waste; swapping needs --host-link.",
            group=FLEET,
        ),
        file_option(
            "output",
            "--output/-o",
            "Parquet: a folder for requests.parquet and pool.parquet.",
            metavar="FOLDER",
        ),
        file_option("picture", "--picture", "Draw the pool over time (SVG)."),
        html_option(),
        json_option(),
        exit_zero_option("Exit with 0 whatever was found."),
    ],
)
