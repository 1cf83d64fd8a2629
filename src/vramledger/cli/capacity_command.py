"""`vramledger capacity`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vramledger.cli.capacity_options import search_options
from vramledger.cli.html_page import html_option, write_answer
from vramledger.cli.load_options import file_option, how_option, load_arguments
from vramledger.cli.options import EngineCommand, GroupedOption, exit_zero_option, json_option
from vramledger.cli.search_options import run_options
from vramledger.cli.workload_options import take_reading
from vramledger.errors import FlagError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramledger.cli.load_setup import Setup
    from vramledger.cli.load_workload import Sent
    from vramledger.report.capacity_document import CapacityDocument
    from vramledger.report.text import Line
    from vramledger.search.capacity.capacity import Extra

REQUESTS = 4_000
MOST_REQUESTS = 200_000
SMALL = 10_000
"""Of fewer requests, in all replications, starting processes takes longer than they save."""
READABLE_REQUESTS = 400
"""Requests of a run by the readable simulator, unless asked for otherwise: it runs some 300 a second."""

_HELP = """Find the largest load that a plan serves within the aims, with a confidence interval; what limits it; the tokens in the pool;
headroom for bursts and restarts; and what the answer is sensitive to.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`); without one, give
--plan, --manifest or --blocks. To change the load a trace is sent faster or slower, and no request is left out; cohorts are sampled at other
rates, several times each."""

_EPILOG = """\b
Examples:
  vramledger capacity ./model --device H100-80GB --max-model-len 16K --workload trace.csv --slo-ttft-ms 1000 --slo-tpot-ms 50
  vramledger capacity ./model --device H100-80GB --workload cohorts.toml --slo-ttft-ms 2000 --goodput 0.95 --picture load.svg
  vramledger capacity --plan plan.json --step-model step.json --workload trace.jsonl --slo-latency-ms 60000 --json

\b
Exit codes: 0 some load meets the aims, 15 none does (0 with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_capacity(
    model: str | None,
    *,
    workload: str,
    requests: int | None,
    rate: float | None,
    seed: int,
    goodput: float,
    confidence: float,
    resolution: float,
    replications: int,
    operating: float,
    with_headroom: bool,
    with_changes: bool | None,
    how: str,
    jobs: int | None,
    ray: str | None,
    at: str | None,
    picture: str | None,
    html_file: str | None,
    as_json: bool,
    exit_zero: bool,
    **options: Any,
) -> int:
    """Set up, search, print, and turn the answer into an exit code."""
    from msgspec.structs import replace

    from vramledger.cli.capacity_changes import kv_formats, pool_ends, prefix_hits, tool_waits
    from vramledger.cli.document_files import check_out, time_text
    from vramledger.cli.exit_codes import AIM_MISSED, HOLDS
    from vramledger.cli.load_setup import asked_of, setup_of
    from vramledger.cli.load_workload import sent_by
    from vramledger.cli.output import page_width
    from vramledger.cli.progress import COMPILING, Runs
    from vramledger.cli.termination import ends_when_told
    from vramledger.report.capacity_document import Answer
    from vramledger.report.load_conditions import Conditions
    from vramledger.search.capacity.capacity import Question, find_capacity, study_of
    from vramledger.search.capacity.crews import crew
    from vramledger.search.sweep import cores
    from vramledger.simulation.settings import Slo

    when = None if at is None else time_text(at)
    reading = take_reading(options)
    asked = asked_of({"model": model, **options})
    for flag, name in (("--picture", picture), ("--html", html_file)):
        check_out(name, (workload, *asked.sources), flag=flag)
    if asked.slo == Slo():
        raise FlagError(
            "a capacity needs an aim: --slo-ttft-ms, --slo-tpot-ms or --slo-latency-ms, such as --slo-ttft-ms 1000 --slo-tpot-ms 50",
            flag="slo_ttft_ms",
        )
    setup = setup_of(asked, follow_parents=reading["follow_parents"])
    sent = sent_by(
        workload, reading, requests=requests, otherwise=REQUESTS, rate=rate, seed=seed, replications=replications,
        is_open=True,
    )  # fmt: skip
    setup, reasons, notes = _simulator(setup, sent, how)
    with_changes = not reasons if with_changes is None else with_changes
    most = READABLE_REQUESTS if reasons and not (requests or reading["limit"]) else MOST_REQUESTS
    tables, more_notes = _tables(sent, most)
    notes += more_notes
    count = max(table.rows for table in tables)
    workers = jobs if jobs is not None else cores() if count * len(tables) >= SMALL else 1
    question = Question(
        aim=goodput,
        confidence=confidence,
        resolution=resolution,
        seed=seed,
        # Loads tried at once: as many as keep the workers busy, the same for any number of them would cost one worker more.
        width=2,
        operating=operating,
        with_headroom=with_headroom,
        with_changes=with_changes,
    )
    extras: tuple[Extra, ...] = ()
    if with_changes:
        extras = (
            *pool_ends(asked, setup),
            *kv_formats(asked, setup),
            *(tool_waits(setup, is_compiled=not reasons) if bool((tables[0].parent >= 0).any()) else ()),
        )
    variants = {"base": tables}
    if with_changes and sent.cohorts:
        more, shifted = prefix_hits(sent, setup, count, seed)
        extras += more
        variants |= shifted
    study = study_of(sent.workloads[0].header, variants, setup.settings, question, extras, how=how)
    with ends_when_told(), Runs() as progress, crew(study, jobs=workers, ray=ray, told=progress.add) as work:
        progress.begin(COMPILING)
        found = find_capacity(study, question, work, extras, told=progress.about)
    answer = Answer(
        conditions=Conditions(
            settings=setup.settings,
            header=sent.workloads[0].header,
            pool_from=setup.pool_from,
            plan=setup.plan,
            requests=count,
            arrival_scale=sent.arrival_scale,
            seed=seed,
            goodput=goodput,
        ),
        capacity=replace(found, notes=(*found.notes, *notes)),
        arrival=sent.arrival,
        at=when,
    )
    if picture is not None:
        from vramledger.cli.pictures import draw
        from vramledger.report.capacity_picture import capacity_svg

        draw(picture, capacity_svg(answer))

    def document() -> CapacityDocument:
        from vramledger.report.capacity_document import capacity_document

        return capacity_document(answer)

    def lines() -> Iterable[Line]:
        from vramledger.report.capacity_text import capacity_lines

        return capacity_lines(answer, width=page_width())

    write_answer("capacity", html_file=html_file, as_json=as_json, document=document, lines=lines)
    return HOLDS if exit_zero or found.load else AIM_MISSED


def _simulator(setup: Setup, sent: Sent, how: str) -> tuple[Setup, list[str], tuple[str, ...]]:
    """Settings that the compiled simulator covers, what it does not cover, and what there is to say of both.

    A search is hundreds of runs. Where asynchronous scheduling alone keeps the compiled simulator from them it is left out, and said so.
    """
    from msgspec.structs import replace

    from vramledger.simulation.compiled.coverage import uncovered_requests, uncovered_settings

    if how == "reference":
        return setup, ["what was asked"], ()
    scheduler = setup.settings.scheduler
    plain = replace(setup.settings, scheduler=replace(scheduler, async_scheduling=False))
    reasons = list(uncovered_settings(plain))
    first = next(sent.workloads[0].batches())
    reasons += uncovered_requests(first, plain)
    if reasons:
        note = (
            f"run by the readable simulator, since the compiled one does not cover {', '.join(reasons)}: fewer requests and no "
            f"sensitivity unless asked for with --requests and --sensitivity"
        )
        return setup, reasons, (note,)
    if scheduler.async_scheduling and [
        *uncovered_settings(setup.settings),
        *uncovered_requests(first, setup.settings),
    ]:
        note = (
            "searched without asynchronous scheduling, which the compiled simulator does not cover: steps are planned when the last "
            "one's tokens are known; --how reference keeps it, and takes a hundred times as long"
        )
        return replace(setup, settings=plain), [], (note,)
    return setup, [], ()


def _tables(sent: Sent, most: int) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Replications in memory; of a longer trace its first requests."""
    from vramledger.workload.columnar.load_shapes import rows_from

    tables, notes = [], []
    for workload in sent.workloads:
        table = workload.table()
        if table.rows > most:
            notes.append(f"the first {most:,} of {table.rows:,} requests; --requests N says how many")
            table = rows_from(table, 0, most)
        tables.append(table)
    if bool((tables[0].parent >= 0).any()):
        notes.append(
            "later turns follow the turns before them: what is scaled is the rate at which conversations start, and requests/s are "
            "those times a conversation's requests"
        )
    return tuple(tables), tuple(dict.fromkeys(notes))


command = EngineCommand(
    "capacity",
    callback=run_capacity,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        *load_arguments(REQUESTS),
        *search_options(),
        how_option(),
        *run_options(),
        GroupedOption(
            ["at", "--at"],
            metavar="TIME",
            help="With --json: the time of the operating point that a manifest keeps (2026-11-30T01:02:03Z).",
            group="Output",
        ),
        file_option("picture", "--picture", "Draw goodput over offered load (SVG)."),
        html_option(),
        json_option(),
        exit_zero_option("Exit with 0 whether any load meets the aims or not."),
    ],
)
