"""`vramledger workload`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vramledger.cli.load_workload import sampling_options, sent_by
from vramledger.cli.options import OUTPUT, GroupedCommand, GroupedOption, json_option
from vramledger.cli.workload_options import WORKLOAD, workload_options

if TYPE_CHECKING:
    from vramledger.workload.columns import Workload

REQUESTS = 10_000

_HELP = """What a trace of requests is, or a sample of cohorts: rate and bursts, lengths, what prompts share, conversations and their pauses.

FILE is a trace, gzip or not; its content tells its format. Known are Azure's, Mooncake's, Qwen-Bailian's and BurstGPT's traces,
coding agents' conversations, access logs of OpenAI-like gateways as JSON lines, request logs of vLLM and SGLang, and any CSV,
Parquet or JSON lines with named columns. Cohorts (.toml, .json) and ServeGen's clients (NAME.rates.parquet) are sampled.
builtin:azure-chat, builtin:short-qa and builtin:ten-second-tools come with the package. --output writes the requests as one format for all, --fit the cohorts that a trace has, to be sampled and changed."""

_EPILOG = """\b
Examples:
  vramledger workload AzureLLMInferenceTrace_conv.csv.gz
  vramledger workload calls.jsonl --column prompt_tokens=ctx --column output_tokens=gen --time-unit ms
  vramledger workload sessions.jsonl --conversation-gap 30 --output sessions.parquet
  vramledger workload trace.csv --fit cohorts.toml
  vramledger workload cohorts.toml --requests 1000000 --output sampled.parquet

\b
Exit codes: 0 read; 2 wrong input, 4 unreadable source, 74 output not written.
"""


def run_workload(
    files: tuple[str, ...],
    *,
    as_json: bool,
    output: str | None,
    fit: str | None,
    cohorts: int | None,
    requests: int | None,
    rate: float | None,
    seed: int,
    max_model_len: str | None,
    **workload: Any,
) -> int:
    """Read or sample, describe, convert, fit."""
    from vramledger.cli.document_files import check_out
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.cli.termination import ends_when_told
    from vramledger.cli.token_counts import token_counts
    from vramledger.models.sources.bounded_file import shown
    from vramledger.report.workload_document import workload_document, workload_part
    from vramledger.report.workload_text import workload_lines

    for flag, target in (("--output", output), ("--fit", fit)):
        if target is not None and len(files) > 1:
            raise click.UsageError(f"{flag} takes one FILE.")
        check_out(target, files, flag=flag)
    if cohorts is not None and fit is None:
        raise click.UsageError("--cohorts is how many --fit finds.")
    longest = None if max_model_len is None else token_counts("max-model-len", max_model_len)[0]
    parts = []
    for file in files:
        sent = sent_by(
            file,
            workload,
            requests=requests,
            otherwise=REQUESTS,
            rate=rate,
            seed=seed,
            max_model_len=longest,
        )
        chosen = sent.workloads[0]
        with ends_when_told():
            if fit is not None:
                _write_fit(chosen, fit, cohorts)
            if output is not None:
                from vramledger.workload.columnar.writing import write_workload

                write_workload(chosen, output)
        from vramledger.workload.columnar.statistics import describe

        parts.append(workload_part(shown(file), chosen.header, describe(chosen)))
    if as_json:
        write_document(workload_document(tuple(parts)))
    else:
        for number, part in enumerate(parts):
            lines = workload_lines(part, width=page_width())
            write_page(lines if number == 0 else [(), *lines])
    return 0


def _write_fit(workload: Workload, target: str, count: int | None) -> None:
    from pathlib import Path

    from vramledger.workload.cohort_file import check_cohort_file_name, write_cohorts
    from vramledger.workload.columnar.fitting import COHORTS, fit_cohorts

    path = Path(target)
    check_cohort_file_name(path)
    fitted = fit_cohorts(workload, count=count or COHORTS)
    write_cohorts(fitted, path, heading=(f"Cohorts fitted to {workload.header.name}.",))


command = GroupedCommand(
    "workload",
    callback=run_workload,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["files"], metavar="FILE...", nargs=-1, required=True),
        *workload_options(),
        *(option for option in sampling_options(REQUESTS) if option.name != "workload"),
        GroupedOption(
            ["cohorts", "--cohorts"],
            type=click.IntRange(1, 1000),
            metavar="N",
            help="About how many cohorts --fit finds, 16 unless given.",
            group=WORKLOAD,
        ),
        GroupedOption(
            ["max_model_len", "--max-model-len"],
            metavar="N",
            help="Count the prompts that are longer (32K).",
            group=WORKLOAD,
        ),
        GroupedOption(
            ["output", "--output", "-o"],
            metavar="FILE",
            help="Write the workload: .parquet, .csv, .jsonl, the latter two also with .gz.",
            group=OUTPUT,
        ),
        GroupedOption(
            ["fit", "--fit"],
            metavar="FILE",
            help="Write the cohorts that the requests are like: .toml or .json.",
            group=OUTPUT,
        ),
        json_option(),
    ],
)
