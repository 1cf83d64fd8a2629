"""`vramledger capacity`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from vramledger.cli.load_options import (
    aim_options,
    file_option,
    fleet_options,
    pool_options,
)
from vramledger.cli.load_workload import sampling_options
from vramledger.cli.options import (
    EngineCommand,
    FiniteRange,
    GroupedOption,
    device_option,
    engine_option,
    exit_zero_option,
    headers_option,
    json_option,
)
from vramledger.cli.search_options import RUN, run_options
from vramledger.cli.workload_options import workload_options
from vramledger.errors import FlagError, VramledgerError

if TYPE_CHECKING:
    from vramledger.cli.load_setup import Asked, Setup
    from vramledger.cli.load_workload import Sent
    from vramledger.search.capacity.capacity import Extra

REQUESTS = 4_000
MOST_REQUESTS = 200_000
SMALL = 10_000
"""Requests of a run below which starting processes takes longer than they save."""
READABLE_REQUESTS = 400
"""Requests of a run where the readable simulator has to do it, some 300 a second, and nobody said how many."""
KV_FORMATS = ("fp8", "bf16")

_HELP = """The largest load that a plan serves well, with how sure that is; what binds there; the pool's tokens; room for bursts and
restarts; and what the answer is sensitive to.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, or a hub id (org/name[@revision]); without one, give
--plan, --manifest or --blocks. A trace is sent faster or slower, never thinned; cohorts come at a rate, sampled several times."""

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
    as_json: bool,
    exit_zero: bool,
    **options: Any,
) -> int:
    """Set up, search, print, and turn the answer into an exit code."""
    from msgspec.structs import replace

    from vramledger.cli.document_files import check_out, time_text
    from vramledger.cli.exit_codes import AIM_MISSED, HOLDS
    from vramledger.cli.load_setup import asked_of, setup_of
    from vramledger.cli.load_workload import sent_by
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.cli.progress import Runs
    from vramledger.cli.termination import ends_when_told
    from vramledger.report.capacity_document import Answer
    from vramledger.report.load_conditions import Conditions
    from vramledger.search.capacity.capacity import Question, find_capacity, study_of
    from vramledger.search.capacity.crews import crew
    from vramledger.search.sweep import cores
    from vramledger.simulation.settings import Slo

    when = None if at is None else time_text(at)
    reading = {
        option.name: options.pop(option.name) for option in workload_options() if option.name is not None
    }
    asked, flags = asked_of({"model": model, **options})
    check_out(
        picture,
        (workload, model, asked.plan_file, asked.manifest_file, asked.step_model),
        flag="--picture",
    )
    asked = replace(asked, flags=flags)
    if asked.slo == Slo():
        raise FlagError(
            "a capacity needs an aim: --slo-ttft-ms, --slo-tpot-ms or --slo-latency-ms, such as --slo-ttft-ms 1000 --slo-tpot-ms 50",
            flag="slo_ttft_ms",
        )
    setup = setup_of(asked)
    if not reading["follow_parents"]:
        setup = replace(setup, settings=replace(setup.settings, follow_parents=False))
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
            *_extras(asked, setup),
            *(_tool_waits(setup, is_compiled=not reasons) if bool((tables[0].parent >= 0).any()) else ()),
        )
    variants = {"base": tables}
    if with_changes and sent.cohorts:
        more, shifted = _prefix_extras(sent, setup, count, seed)
        extras += more
        variants |= shifted
    study = study_of(sent.workloads[0].header, variants, setup.settings, question, extras, how=how)
    with ends_when_told(), Runs() as progress, crew(study, jobs=workers, ray=ray, told=progress.add) as work:
        found = find_capacity(study, question, work, extras, told=progress.about)
    answer = Answer(
        conditions=Conditions(
            settings=setup.settings,
            header=sent.workloads[0].header,
            pool_from=setup.pool_from,
            plan=setup.plan,
            requests=count,
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
    if as_json:
        from vramledger.report.capacity_document import capacity_document

        write_document(capacity_document(answer))
    else:
        from vramledger.report.capacity_text import capacity_lines

        write_page(capacity_lines(answer, width=page_width()))
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


def _extras(asked: Asked, setup: Setup) -> Iterator[Extra]:
    """The same model planned with other KV formats, where a plan is made here."""
    from msgspec.structs import replace

    from vramledger.cli.load_setup import setup_of
    from vramledger.search.capacity.capacity import Extra
    from vramledger.search.capacity.study import Case
    from vramledger.search.terms import terms_of

    if setup.plan is None or setup.plan.kv_pool is None:
        return
    yield from _pool_ends(asked, setup)
    stored = setup.plan.kv_pool.dtype
    if asked.model is None or asked.plan_file is not None or asked.manifest_file is not None:
        yield Extra(factor="KV format", change="another", refusal="needs MODEL and --device, to plan it anew")
        return
    terms = terms_of(asked.engine)
    for name in KV_FORMATS:
        word = terms.kv_names.get(name)
        if word is None or not terms.kv:
            continue
        changed = replace(asked, flags={**asked.flags, **dict.fromkeys(terms.kv, word)}, blocks=None)
        try:
            other = setup_of(changed)
        except VramledgerError as problem:
            yield Extra(factor="KV format", change=f"{stored} -> {name}", refusal=problem.message)
            continue
        if other.plan is not None and other.plan.kv_pool is not None and other.plan.kv_pool.dtype != stored:
            scheduler = replace(
                other.settings.scheduler, async_scheduling=setup.settings.scheduler.async_scheduling
            )
            settings = replace(
                other.settings, follow_parents=setup.settings.follow_parents, scheduler=scheduler
            )
            yield Extra(
                factor="KV format",
                change=f"{stored} -> {other.plan.kv_pool.dtype}",
                case=Case(settings=settings),
            )


def _pool_ends(asked: Asked, setup: Setup) -> Iterator[Extra]:
    """The least and the most blocks that the plan may leave."""
    from msgspec.structs import replace

    from vramledger.search.capacity.capacity import Extra
    from vramledger.search.capacity.study import Case

    pool, layout = None if setup.plan is None else setup.plan.kv_pool, setup.settings.layout
    if pool is None or asked.blocks is not None or layout.num_blocks != pool.num_blocks.expected:
        return
    for name, blocks in (("low", pool.num_blocks.low), ("high", pool.num_blocks.high)):
        if blocks not in (0, layout.num_blocks):
            settings = replace(setup.settings, layout=replace(layout, num_blocks=blocks))
            yield Extra(
                factor="pool", change=f"plan's {name}, {blocks:,} blocks", case=Case(settings=settings)
            )


def _tool_waits(setup: Setup, *, is_compiled: bool) -> Iterator[Extra]:
    """Other ways to treat a conversation's KV between its turns."""
    from msgspec.structs import replace

    from vramledger.search.capacity.capacity import Extra
    from vramledger.search.capacity.study import Case
    from vramledger.simulation.settings import ToolWait

    settings = setup.settings
    for policy in ToolWait:
        if policy is settings.tool_wait:
            continue
        change = f"{settings.tool_wait.value} -> {policy.value}"
        if policy is ToolWait.SWAP and not (settings.host_link_bytes_per_s and settings.host_swap_bytes):
            yield Extra(factor="tool wait", change=change, refusal="needs --host-link and --host-swap")
        elif is_compiled:
            yield Extra(factor="tool wait", change=change, refusal="needs --how reference")
        else:
            yield Extra(
                factor="tool wait", change=change, case=Case(settings=replace(settings, tool_wait=policy))
            )


def _prefix_extras(
    sent: Sent, setup: Setup, requests: int, seed: int
) -> tuple[tuple[Extra, ...], dict[str, tuple[Any, ...]]]:
    """The cohorts with a prefix hit a quarter higher and a quarter lower."""
    from msgspec.structs import replace

    from vramledger.cli.load_workload import resampled
    from vramledger.search.capacity.capacity import Extra
    from vramledger.search.capacity.study import Case

    extras, tables = [], {}
    if not any(cohort.prefix_hit is not None and 0 < cohort.hit_share < 1 for cohort in sent.cohorts):
        return (), {}
    for scale in (0.75, 1.25):
        cohorts = [
            cohort
            if cohort.prefix_hit is None
            else replace(cohort, prefix_hit=min(cohort.hit_share * scale, 0.99))
            for cohort in sent.cohorts
        ]
        name = f"prefix hit x {scale:g}"
        tables[name] = tuple(
            workload.table() for workload in resampled(cohorts, requests, seed, len(sent.workloads))
        )
        extras.append(
            Extra(factor="prefix hit", change=f"x {scale:g}", case=Case(settings=setup.settings, tables=name))
        )
    return tuple(extras), tables


command = EngineCommand(
    "capacity",
    callback=run_capacity,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="[MODEL]", required=False),
        device_option(required=False),
        engine_option(),
        headers_option(),
        *sampling_options(REQUESTS),
        *workload_options(),
        *pool_options(),
        *fleet_options(),
        *aim_options(),
        GroupedOption(
            ["confidence", "--confidence"],
            type=FiniteRange(0.5, 0.999),
            default=0.95,
            show_default=True,
            metavar="SHARE",
            help="Of the interval: how sure its lower end must be.",
            group="Aims",
        ),
        GroupedOption(
            ["resolution", "--resolution"],
            type=FiniteRange(0.001, 0.5),
            default=0.02,
            show_default=True,
            metavar="SHARE",
            help="How finely the load is searched.",
            group=RUN,
        ),
        GroupedOption(
            ["replications", "--replications"],
            type=click.IntRange(1, 64),
            default=3,
            show_default=True,
            metavar="N",
            help="Samples of cohorts that each load is run with; a trace is one.",
            group=RUN,
        ),
        GroupedOption(
            ["operating", "--operating-share"],
            type=FiniteRange(0, 1, min_open=True),
            default=0.8,
            show_default=True,
            metavar="SHARE",
            help="Share of the capacity that bursts and restarts are told at.",
            group=RUN,
        ),
        GroupedOption(
            ["with_headroom", "--headroom/--no-headroom"],
            default=True,
            help="Tell room for bursts and restarts.",
            group=RUN,
        ),
        GroupedOption(
            ["with_changes", "--sensitivity/--no-sensitivity"],
            default=None,
            help="Tell what the capacity is sensitive to, a search for each change; unless the readable simulator has to run it.",
            group=RUN,
        ),
        GroupedOption(
            ["how", "--how"],
            type=click.Choice(["auto", "compiled", "reference"]),
            default="auto",
            help="Which of the two simulators, which agree: the compiled one where it can unless given.",
            group=RUN,
        ),
        *run_options(),
        GroupedOption(
            ["at", "--at"],
            metavar="TIME",
            help="With --json: the time of the operating point that a manifest keeps (2026-11-30T01:02:03Z).",
            group="Output",
        ),
        file_option("picture", "--picture", "Draw goodput over offered load (SVG)."),
        json_option(),
        exit_zero_option("Exit with 0 whether any load meets the aims or not."),
    ],
)
