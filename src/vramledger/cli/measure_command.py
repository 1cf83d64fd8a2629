"""`vramledger measure`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from vramledger.cli.options import GENERAL, OUTPUT, FiniteRange, GroupedCommand, GroupedOption, json_option

if TYPE_CHECKING:
    from vramledger.measurement import Measurement

_HELP = """One measurement of one running instance, from any mix of sources.

Sources are told apart in the answer and never averaged; what two of them state differently is told. FILE may be - for
standard input, once."""

_EPILOG = """\b
Examples:
  vramledger measure --url http://127.0.0.1:8000 --pid 4711
  vramledger measure --log vllm.log --metrics metrics.txt -o measurement.json
  vramledger measure --series start.parquet --log vllm.log --json
  nvidia-smi -q -x | vramledger measure --nvidia-smi -
  vramledger measure --server-info server_info.json --dcgm http://node:9400/metrics
  vramledger measure --snapshot oom.pickle

\b
Exit codes: 0 measured; 2 wrong input, 4 unreadable source, 74 output not written.
"""


def run_measure(
    *,
    logs: tuple[str, ...],
    urls: tuple[str, ...],
    metrics: tuple[str, ...],
    server_info: tuple[str, ...],
    smi: tuple[str, ...],
    smi_columns: str | None,
    dcgm: tuple[str, ...],
    snapshots: tuple[str, ...],
    series: tuple[str, ...],
    pids: tuple[int, ...],
    nvml: bool,
    engine: str | None,
    token_env: str | None,
    timeout: float,
    out: str | None,
    as_json: bool,
) -> int:
    """Read every source, merge, print."""
    from vramledger.cli.document_files import check_out
    from vramledger.cli.measured_log import measured_log
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.documents.measurement import measurement_document
    from vramledger.models.sources.bounded_file import path_of
    from vramledger.telemetry import measuring
    from vramledger.telemetry.merging import merged
    from vramledger.telemetry.probes.engine import engine_measurement
    from vramledger.whole_file import write_document_file

    name = _engine(engine)
    token = token_of(token_env)
    files = (*logs, *metrics, *server_info, *smi, *dcgm, *snapshots, *series)
    _check_inputs(files)
    check_out(out, files)
    columns = tuple(part.strip() for part in (smi_columns or "").split(",") if part.strip())
    all_pids = _with_children(pids)
    parts: list[Measurement] = []
    parts += [measured_log((text,), engine=name) for text in logs]
    parts += [engine_measurement(url, engine=name, token=token, limit_s=timeout) for url in urls]
    parts += [measuring.measured_metrics(text, engine=name) for text in metrics]
    parts += [measuring.measured_server_info(text, engine=name) for text in server_info]
    parts += [measuring.measured_series(text) for text in series]
    parts += [measuring.measured_snapshot(text) for text in snapshots]
    parts += [measuring.measured_smi(text, columns=columns, pids=all_pids) for text in smi]
    parts += [measuring.measured_dcgm(text, limit_s=timeout) for text in dcgm]
    if nvml:
        parts += _or_a_note(lambda: measuring.measured_devices(pids=all_pids))
    parts += [measuring.measured_processes(pid) for pid in pids]
    if not parts:
        raise click.UsageError("Nothing to measure: give a source such as --log, --url or --pid.")
    measurement = merged(parts)
    if out is not None:
        write_document_file(measurement_document(measurement), path_of(out))
    if as_json:
        write_document(measurement_document(measurement))
    else:
        from vramledger.report.measurement_text import measurement_lines

        write_page(measurement_lines(measurement, width=page_width()))
    return 0


def token_of(variable: str | None) -> str | None:
    """The token that an environment variable holds. Raises FlagError where it is not set."""
    from vramledger.errors import FlagError

    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token or not token.isprintable():
        raise FlagError(
            f"--token-env names {variable}, which holds no token", flag="token_env", value=variable
        )
    return token


def _engine(text: str | None) -> str | None:
    from vramledger.engines import check_engine, engine_name

    if text is None:
        return None
    check_engine(engine_name(text))
    return engine_name(text)


def _check_inputs(names: tuple[str, ...]) -> None:
    from vramledger.errors import FlagError

    if names.count("-") > 1:
        raise FlagError("standard input (-) can be read once only", flag="file", value="-")


def _with_children(pids: tuple[int, ...]) -> tuple[int, ...]:
    from vramledger.telemetry.probes.proc import process_tree

    return tuple(sorted({member for pid in pids for member in process_tree(pid)}))


def _or_a_note(read: Callable[[], Measurement]) -> Iterator[Measurement]:
    """A probe that may be absent: then why, as a note."""
    from vramledger.errors import SourceError
    from vramledger.measurement import Measurement

    try:
        yield read()
    except SourceError as problem:
        yield Measurement(sources=(), notes=(problem.message,))


def _files(name: str, flag: str, metavar: str, text: str) -> GroupedOption:
    return GroupedOption([name, flag], multiple=True, metavar=metavar, help=text, group="Sources")


def source_engine_option() -> GroupedOption:
    """`--engine`, of what was or is being measured."""
    return GroupedOption(
        ["engine", "--engine"],
        metavar="NAME",
        help="The engine, where it is not to be told from the source.",
        group=GENERAL,
    )


def token_option() -> GroupedOption:
    """`--token-env`."""
    return GroupedOption(
        ["token_env", "--token-env"],
        metavar="NAME",
        help="Environment variable with the bearer token that the server asks for.",
        group=GENERAL,
    )


command = GroupedCommand(
    "measure",
    callback=run_measure,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        _files("logs", "--log", "FILE", "The engine's log."),
        _files("urls", "--url", "URL", "A running engine: its metrics and information endpoints."),
        _files("metrics", "--metrics", "FILE", "What its /metrics answered."),
        _files("server_info", "--server-info", "FILE", "What an information endpoint of it answered."),
        _files(
            "smi",
            "--nvidia-smi",
            "FILE",
            "What nvidia-smi (table, -q, -x, CSV), rocm-smi or amd-smi (JSON) printed.",
        ),
        GroupedOption(
            ["smi_columns", "--smi-columns"],
            metavar="NAME,NAME",
            help="Columns of a CSV of nvidia-smi that has no header.",
            group="Sources",
        ),
        _files("dcgm", "--dcgm", "FILE|URL", "What dcgm-exporter answered, or where it answers."),
        _files("snapshots", "--snapshot", "FILE", "A snapshot of torch's allocator."),
        _files("series", "--series", "FILE", "A time series that vramledger sample wrote."),
        GroupedOption(
            ["pids", "--pid"],
            multiple=True,
            type=click.IntRange(min=1),
            metavar="PID",
            help="Host memory of a process and all that it started.",
            group="Sources",
        ),
        GroupedOption(
            ["nvml", "--nvml"],
            is_flag=True,
            help="This machine's devices; with --pid those that these processes use.",
            group="Sources",
        ),
        source_engine_option(),
        token_option(),
        GroupedOption(
            ["timeout", "--timeout"],
            type=FiniteRange(min=0.1, max=600),
            default=10.0,
            metavar="SECONDS",
            help="Longest wait for an answer.",
            group=GENERAL,
        ),
        GroupedOption(
            ["out", "-o", "--out"],
            metavar="FILE",
            help="Write the measurement's document to a file too.",
            group=OUTPUT,
        ),
        json_option(),
    ],
)
