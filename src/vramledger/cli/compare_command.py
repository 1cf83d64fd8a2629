"""`vramledger compare`."""

from __future__ import annotations

import click

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

_HELP = """Engines, or versions of one, side by side: the ledgers owner by owner, the pools, what each prints.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""

_EPILOG = """\b
Examples:
  vramledger compare ./model --device H100-80GB --engine vllm --engine sglang --engine llamacpp
  vramledger compare ./model --device L40S --engine vllm==0.11.0 --engine vllm==0.32.0 --context 32K
  vramledger compare org/name --device B200 --tp 8 --context 64K --concurrency 32 --kv fp8 \\
    --engine vllm --engine sglang --flags sglang:mem_fraction_static=0.85 --json

\b
Exit codes: 0 some plan holds, 10 none holds, 11 none holds and some cannot be told (0 with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_compare(
    model: str,
    *,
    device: str,
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
    exit_zero: bool,
) -> int:
    """Ask each engine the same, print the answers beside each other."""
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.cli.search_options import engine_list, one_count
    from vramledger.hardware.catalogue import find_device
    from vramledger.search.ask import compare
    from vramledger.search.terms import read_engine_flags

    asked = engine_list(engine, ("all",))
    length = one_count("context", context) if context is not None else None
    find_device(device)
    own = read_engine_flags(flags, asked)
    found = compare(
        load(model, headers=headers),
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
    if as_json:
        from vramledger.report.comparison_document import comparison_document

        write_document(comparison_document(found))
    else:
        from vramledger.report.comparison_text import comparison_lines

        write_page(comparison_lines(found, width=page_width()))
    return exit_code((column.outcome.status for column in found.columns), exit_zero=exit_zero)


command = GroupedCommand(
    "compare",
    callback=run_compare,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL"),
        device_option(),
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
        exit_zero_option(),
    ],
)
