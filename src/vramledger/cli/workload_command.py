"""`vramledger workload`."""

from __future__ import annotations

from typing import Any

import click

from vramledger.cli.options import OUTPUT, GroupedCommand, GroupedOption, json_option
from vramledger.cli.workload_options import WORKLOAD, read_chosen, workload_options

_HELP = """What a trace of requests is: rate and bursts, lengths, what prompts share, conversations and their pauses.

FILE is a trace, gzip or not; its content tells its format. Known are Azure's, Mooncake's, Qwen-Bailian's and BurstGPT's traces,
coding agents' conversations, access logs of OpenAI-like gateways as JSON lines, request logs of vLLM and SGLang, and any CSV,
Parquet or JSON lines with named columns. --output writes what was read as one format for all."""

_EPILOG = """\b
Examples:
  vramledger workload AzureLLMInferenceTrace_conv.csv.gz
  vramledger workload calls.jsonl --column prompt_tokens=ctx --column output_tokens=gen --time-unit ms
  vramledger workload sessions.jsonl --conversation-gap 30 --output sessions.parquet

\b
Exit codes: 0 read; 2 wrong input, 4 unreadable source, 74 output not written.
"""


def run_workload(
    files: tuple[str, ...], *, as_json: bool, output: str | None, max_model_len: str | None, **workload: Any
) -> int:
    """Read, describe, convert."""
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.cli.token_counts import token_counts
    from vramledger.models.sources.bounded_file import shown
    from vramledger.report.workload_document import workload_document, workload_part
    from vramledger.report.workload_text import workload_lines

    if output is not None and len(files) > 1:
        raise click.UsageError("--output takes one FILE.")
    longest = None if max_model_len is None else token_counts("max-model-len", max_model_len)[0]
    parts = []
    for file in files:
        chosen = read_chosen(file, workload, max_model_len=longest)
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


command = GroupedCommand(
    "workload",
    callback=run_workload,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["files"], metavar="FILE...", nargs=-1, required=True),
        *workload_options(),
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
        json_option(),
    ],
)
