"""`vramledger sample`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import click

from vramledger.cli.measure_command import source_engine_option, token_of, token_option
from vramledger.cli.options import GENERAL, FiniteRange, GroupedCommand, GroupedOption, json_option

if TYPE_CHECKING:
    from pathlib import Path

    from vramledger.ledger import Phase
    from vramledger.telemetry.marks import ReadMarks
    from vramledger.telemetry.series import Sampler, Source
    from vramledger.telemetry.series_file import SeriesWriter

Marked = tuple[float, str, "Phase | None"]

_HELP = """A time series of a running instance into FILE (.parquet or .jsonl), with what it was at marked.

Marks come from the engine's log (--log), and from whoever starts the engine: --mark, given FILE while another vramledger
samples into it, or marking() of vramledger.telemetry.marks in Python. Ctrl-C ends the file, and keeps what was sampled.
"""

_EPILOG = """\b
Examples:
  vramledger sample start.parquet --nvml --pid 4711 --log vllm.log --interval 0.2 --until-exit 4711
  vramledger sample load.jsonl --url http://127.0.0.1:8000 --pid 4711 --duration 60
  vramledger sample load.jsonl --mark prefill --phase prefill

\b
Exit codes: 0 sampled; 2 wrong input, 4 no source ever answered, 74 output not written.
"""


def run_sample(
    file: str,
    *,
    urls: tuple[str, ...],
    dcgm: tuple[str, ...],
    pids: tuple[int, ...],
    nvml: bool,
    log: str | None,
    engine: str | None,
    interval: float,
    duration: float | None,
    until_exit: int | None,
    mark: str | None,
    phase: str | None,
    token_env: str | None,
    as_json: bool,
) -> int:
    """Sample, or leave a mark for who does."""
    from vramledger.ledger import Phase
    from vramledger.models.sources.bounded_file import path_of
    from vramledger.telemetry.log_marks import LogMarks
    from vramledger.telemetry.marks import write_mark
    from vramledger.telemetry.series_file import series_format

    path = path_of(file)
    series_format(path)
    if mark is not None:
        if not mark.strip():
            raise click.UsageError("--mark needs a name.")
        left = write_mark(path, mark.strip(), None if phase is None else Phase(phase))
        if as_json:
            _print(path, from_s=left.at_s, until_s=left.at_s, marks=[(left.at_s, left.label, left.phase)])
        return 0
    if phase is not None:
        raise click.UsageError("--phase says something of --mark only; give that too.")
    with ExitStack() as stack:
        sources, notes = _sources(
            stack, urls, dcgm, pids, nvml=nvml, engine=engine, token=token_of(token_env)
        )
        if not sources:
            reason = f" ({'; '.join(notes)})" if notes else ""
            raise click.UsageError(f"Nothing to sample: give --url, --pid, --nvml or --dcgm{reason}.")
        reads: list[ReadMarks] = []
        if log is not None:
            reads.append(stack.enter_context(LogMarks(path_of(log), engine=engine)))
        return _run(path, sources, notes, reads, interval, _end(duration, until_exit), as_json=as_json)


def _sources(
    stack: ExitStack,
    urls: tuple[str, ...],
    dcgm: tuple[str, ...],
    pids: tuple[int, ...],
    *,
    nvml: bool,
    engine: str | None,
    token: str | None,
) -> tuple[list[Source], list[str]]:
    """What can be asked, and why what cannot be is left out."""
    from vramledger.engines import engine_name
    from vramledger.errors import SourceError
    from vramledger.telemetry.adapters.dcgm import DcgmProbe
    from vramledger.telemetry.probes.engine import MetricsProbe
    from vramledger.telemetry.probes.host import HostProbe
    from vramledger.telemetry.probes.nvml import Nvml

    name = None if engine is None else engine_name(engine)
    sources: list[Source] = []
    notes: list[str] = []
    if nvml:
        try:
            sources.append(stack.enter_context(Nvml()))
        except SourceError as problem:
            notes.append(problem.message)
    try:
        sources += [HostProbe(pid) for pid in pids]
    except SourceError as problem:
        notes.append(problem.message)
    sources += [MetricsProbe(url, engine=name, token=token) for url in urls]
    sources += [DcgmProbe(url) for url in dcgm]
    return sources, notes


def _end(duration: float | None, until_exit: int | None) -> Callable[[float, float], bool]:
    """Whether to go on, given now and the beginning."""
    from vramledger.telemetry.probes.proc import is_alive

    def goes_on(now_s: float, started_s: float) -> bool:
        if duration is not None and now_s - started_s >= duration:
            return False
        return until_exit is None or is_alive(until_exit)

    return goes_on


def _run(
    path: Path,
    sources: list[Source],
    notes: list[str],
    reads: list[ReadMarks],
    interval: float,
    goes_on: Callable[[float, float], bool],
    *,
    as_json: bool,
) -> int:
    from vramledger.cli.output import write_message
    from vramledger.cli.termination import ends_when_told
    from vramledger.models.sources.bounded_file import shown
    from vramledger.telemetry.log_marks import LogMarks
    from vramledger.telemetry.marks import MarksReader, marks_file
    from vramledger.telemetry.series import Sampler
    from vramledger.telemetry.series_file import SeriesWriter

    started_s = time.time()
    marks: list[Marked] = []
    with ends_when_told(), SeriesWriter(path) as writer:
        sampler = Sampler(
            sources,
            interval_s=interval,
            clock=time.time,
            sleep=time.sleep,
            goes_on=lambda now_s: goes_on(now_s, started_s),
            marks=[MarksReader(marks_file(path), started_s), *reads],
        )
        with suppress(KeyboardInterrupt, SystemExit):
            _fill(writer, sampler, marks)
        ended = sampler.end()
        writer.write([ended])
    marks_file(path).unlink(missing_ok=True)
    problems = [read.problem for read in reads if isinstance(read, LogMarks) and read.problem]
    told = (*notes, *sampler.notes, *(f"the log marks nothing: {problem}" for problem in problems))
    for note in told:
        write_message(note)
    if as_json:
        names = tuple(source.name for source in sources)
        _print(
            path,
            rows=writer.rows,
            from_s=started_s,
            until_s=ended.at_s,
            sources=names,
            marks=marks,
            notes=told,
        )
    else:
        write_message(f"{writer.rows:,} rows in {shown(path)}")
    return 0 if sampler.answered else 4


def _fill(writer: SeriesWriter, sampler: Sampler, marks: list[Marked]) -> None:
    from vramledger.cli.progress import Watch
    from vramledger.telemetry.marks import MARK

    with Watch() as watch:
        for tick in sampler:
            writer.write(tick.samples)
            marks += [(row.at_s, row.label, row.phase) for row in tick.samples if row.name == MARK]
            watch.tell(f"{tick.at_s - sampler.started_s:,.0f} s, {writer.rows:,} rows, {tick.label}")


def _print(path: Path, *, marks: list[Marked], **facts: Any) -> None:
    from vramledger.cli.output import write_document
    from vramledger.models.sources.bounded_file import shown
    from vramledger.report.series_document import series_document

    write_document(series_document(file=shown(path), marks=tuple(marks), **facts))


command = GroupedCommand(
    "sample",
    callback=run_sample,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["file"], metavar="FILE"),
        GroupedOption(
            ["urls", "--url"],
            multiple=True,
            metavar="URL",
            help="A running engine: its metrics.",
            group="Sources",
        ),
        GroupedOption(
            ["pids", "--pid"],
            multiple=True,
            type=click.IntRange(min=1),
            metavar="PID",
            help="Host memory of a process and all that it started.",
            group="Sources",
        ),
        GroupedOption(["nvml", "--nvml"], is_flag=True, help="This machine's devices.", group="Sources"),
        GroupedOption(
            ["dcgm", "--dcgm"],
            multiple=True,
            metavar="URL",
            help="Where dcgm-exporter answers.",
            group="Sources",
        ),
        GroupedOption(
            ["log", "--log"],
            metavar="FILE",
            help="The engine's log, followed: loading, warm-up, each captured size and readiness are marked.",
            group="Marks",
        ),
        GroupedOption(
            ["mark", "--mark"],
            metavar="NAME",
            help="Mark FILE, into which another vramledger samples now, and end.",
            group="Marks",
        ),
        GroupedOption(
            ["phase", "--phase"],
            type=click.Choice(["load", "warmup", "prefill", "decode", "recovery"]),
            help="The phase that --mark begins.",
            group="Marks",
        ),
        source_engine_option(),
        GroupedOption(
            ["interval", "--interval"],
            type=FiniteRange(min=0.01, max=3600),
            default=0.5,
            show_default=True,
            metavar="SECONDS",
            help="Time between two readings.",
            group=GENERAL,
        ),
        GroupedOption(
            ["duration", "--duration"],
            type=FiniteRange(min=0),
            metavar="SECONDS",
            help="How long; until Ctrl-C otherwise.",
            group=GENERAL,
        ),
        GroupedOption(
            ["until_exit", "--until-exit"],
            type=click.IntRange(min=1),
            metavar="PID",
            help="End when this process does.",
            group=GENERAL,
        ),
        token_option(),
        json_option(),
    ],
)
