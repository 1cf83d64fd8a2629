"""`vramledger compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vramledger.cli.html_page import html_option, write_answer
from vramledger.cli.options import (
    GroupedCommand,
    device_option,
    exit_zero_option,
    headers_option,
    json_option,
)
from vramledger.cli.search_options import (
    engines_option,
    exit_code,
    flags_option,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramledger.report.comparison_document import ComparisonDocument
    from vramledger.report.text import Line
    from vramledger.search.comparison import Comparison

_HELP = """Engines, or versions of one, side by side: the ledgers owner by owner, the pools, what each prints.

Without --device, plans side by side: two or more files of `vramledger plan --json`, of any models, devices and engines.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""

_EPILOG = """\b
Examples:
  vramledger compare ./model --device H100-80GB --engine vllm --engine sglang --engine llamacpp
  vramledger compare ./model --device L40S --engine vllm==0.11.0 --engine vllm==0.32.0 --context 32K
  vramledger compare org/name --device B200 --tp 8 --context 64K --concurrency 32 --kv fp8 \\
    --engine vllm --engine sglang --flags sglang:mem_fraction_static=0.85 --json
  vramledger compare h100.json l40s.json --html compare.html

\b
Exit codes: 0 some plan holds, 10 none holds, 11 none holds and some cannot be told (0 with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_compare(
    model: tuple[str, ...],
    *,
    device: str | None,
    engine: tuple[str, ...],
    headers: bool,
    tp: int,
    pp: int,
    ep: bool,
    context: str | None,
    concurrency: int,
    kv: str,
    flags: tuple[str, ...],
    as_json: bool,
    html_file: str | None,
    exit_zero: bool,
) -> int:
    """Ask each engine the same, print the answers beside each other."""
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width
    from vramledger.cli.search_options import engine_list, one_count
    from vramledger.hardware.catalogue import find_device
    from vramledger.search.ask import compare
    from vramledger.search.terms import read_engine_flags

    if device is None:
        found = _of_plans(model)
    elif len(model) > 1:
        raise click.UsageError("One MODEL is asked about with --device; plans side by side take none.")
    else:
        asked = engine_list(engine, ("all",))
        length = one_count("context", context) if context is not None else None
        find_device(device)
        own = read_engine_flags(flags, asked)
        found = compare(
            load(model[0], headers=headers),
            device,
            asked,
            tp=tp,
            pp=pp,
            ep=ep,
            context_tokens=length,
            concurrency=concurrency,
            kv=kv,
            flags=own,
        )

    def document() -> ComparisonDocument:
        from vramledger.report.comparison_document import comparison_document

        return comparison_document(found)

    def lines() -> Iterable[Line]:
        from vramledger.report.comparison_text import comparison_lines

        return comparison_lines(found, width=page_width())

    write_answer("compare", html_file=html_file, as_json=as_json, document=document, lines=lines)
    return exit_code((column.outcome.status for column in found.columns), exit_zero=exit_zero)


def _of_plans(files: tuple[str, ...]) -> Comparison:
    """The plans of these files beside each other, by their names. Raises SourceError or InputError for what is no plan."""
    from pathlib import Path

    from vramledger.cli.document_files import plan_from
    from vramledger.search.comparison import compare_plans

    if len(files) < 2:
        raise click.UsageError("Missing option '--device': only two plans or more are compared without it.")
    context = click.get_current_context()
    for name in _OF_A_MODEL:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} asks about a MODEL on a --device; plans have their own.")
    stems = [Path(file).stem for file in files]
    names = stems if len(set(stems)) == len(stems) else files
    return compare_plans([(name, plan_from(file)[0]) for name, file in zip(names, files, strict=True)])


_OF_A_MODEL = ("engine", "tp", "pp", "ep", "context", "concurrency", "kv", "flags")


command = GroupedCommand(
    "compare",
    callback=run_compare,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL|PLAN...", nargs=-1, required=True),
        device_option(required=False),
        engines_option(
            "An engine, or a version of one; repeat it for each column. All engines unless given."
        ),
        option(
            "tp", "--tp", "Devices a layer is cut over.", type=click.IntRange(min=1), default=1, metavar="N"
        ),
        option("pp", "--pp", "Stages of layers.", type=click.IntRange(min=1), default=1, metavar="N"),
        option("ep", "--ep", "Spread experts whole over the devices of a layer.", is_flag=True),
        option(
            "context",
            "--context",
            "Tokens of a request, 32768 or 32K; the model's limit unless given.",
            metavar="N",
        ),
        option(
            "concurrency",
            "--concurrency",
            "Requests of that context that must be held at once.",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
        ),
        option(
            "kv",
            "--kv",
            "KV cache format: auto, bf16, fp16, fp8, fp8_e5m2, int8, nvfp4, int4.",
            default="auto",
            metavar="NAME",
        ),
        flags_option(),
        headers_option(),
        json_option(),
        html_option(),
        exit_zero_option(),
    ],
)
