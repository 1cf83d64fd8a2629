"""`vramledger model`."""

from __future__ import annotations

import click

from vramledger.cli.options import GroupedCommand, headers_option, json_option

_HELP = """What MODEL is: layers by kind, parameters, formats by part, KV bytes a token.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, or a hub id (org/name[@revision])."""


def run_model(model: str, *, headers: bool, as_json: bool) -> int:
    """Read the model and print it."""
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width, write_document, write_page

    checkpoint = load(model, headers=headers)
    if as_json:
        from vramledger.report.model_document import model_document

        write_document(model_document(checkpoint))
    else:
        from vramledger.report.model_text import model_lines

        write_page(model_lines(checkpoint, width=page_width()))
    return 0


command = GroupedCommand(
    "model",
    callback=run_model,
    help=_HELP,
    params=[click.Argument(["model"], metavar="MODEL"), headers_option(), json_option()],
)
