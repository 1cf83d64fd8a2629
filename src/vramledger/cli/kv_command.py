"""`vramledger kv`."""

from __future__ import annotations

import click

from vramledger.cli.options import GENERAL, GroupedCommand, GroupedOption, json_option

_HELP = """What the KV cache of MODEL takes in each format: raw bits, and the bytes that come of them by length.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""

_EPILOG = """\b
Examples:
  vramledger kv ./Llama-3.1-8B-Instruct
  vramledger kv ./model --format fp8 --format kivi_2:group=64,residual=64 --context 1K,8K,128K --batch 32
"""


def run_kv(model: str, *, formats: tuple[str, ...], context: str, batch: int, tp: int, as_json: bool) -> int:
    """Compare and print."""
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.cli.token_counts import token_counts
    from vramledger.report.kv_document import compare_formats, kv_document

    contexts = tuple(sorted(set(token_counts("context", context))))
    checkpoint = load(model, headers=False)
    comparison = compare_formats(checkpoint.model, formats, contexts, sequences=batch, tp=tp)
    if as_json:
        write_document(kv_document(comparison))
    else:
        from vramledger.report.kv_text import kv_lines

        write_page(kv_lines(comparison, width=page_width()))
    return 0


command = GroupedCommand(
    "kv",
    callback=run_kv,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL"),
        GroupedOption(
            ["formats", "--format", "-f"],
            multiple=True,
            metavar="NAME[:NUMBER=N,...]",
            help="A format, or one with its numbers changed; may be given several times. All without it.",
            group=GENERAL,
        ),
        GroupedOption(
            ["context", "--context"],
            default="1K,8K,32K",
            show_default=True,
            metavar="N,N,...",
            help="Lengths of a sequence in tokens.",
            group=GENERAL,
        ),
        GroupedOption(
            ["batch", "--batch"],
            type=click.IntRange(1, 2**20),
            default=1,
            metavar="N",
            help="Sequences of that length.",
            group=GENERAL,
        ),
        GroupedOption(
            ["tp", "--tp"],
            type=click.IntRange(1, 2**12),
            default=1,
            metavar="N",
            help="Tensor parallel ranks; the bytes are one rank's.",
            group=GENERAL,
        ),
        json_option(),
    ],
)
