"""`vramledger model`."""

from __future__ import annotations

import click

from vramledger.cli.options import GENERAL, GroupedCommand, GroupedOption, headers_option, json_option

_HELP = """What MODEL is: layers by kind, parameters, formats by part, KV bytes a token.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""


def run_model(model: str | None, *, listed: bool, headers: bool, as_json: bool) -> int:
    """Read the model and print it, or list those that are built in."""
    if listed:
        if model is not None:
            raise click.UsageError("--list takes no MODEL.")
        return _list(as_json=as_json)
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'; --list names models that are built in.")
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


def _list(*, as_json: bool) -> int:
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.models.builtin import models
    from vramledger.report.builtin_models_document import builtin_models_document

    document = builtin_models_document(models())
    if as_json:
        write_document(document)
    else:
        from vramledger.report.builtin_models_text import builtin_models_lines

        write_page(builtin_models_lines(document, width=page_width()))
    return 0


command = GroupedCommand(
    "model",
    callback=run_model,
    help=_HELP,
    params=[
        click.Argument(["model"], metavar="[MODEL]", required=False),
        GroupedOption(
            ["listed", "--list"],
            is_flag=True,
            help="List the built-in models and their sources.",
            group=GENERAL,
        ),
        headers_option(),
        json_option(),
    ],
)
