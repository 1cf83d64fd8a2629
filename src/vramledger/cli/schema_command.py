"""`vramledger schema`."""

from __future__ import annotations

import click

from vramledger.cli.options import GroupedCommand
from vramledger.report.schema import schema_names


def run_schema(document: str) -> int:
    """Print one schema."""
    from vramledger.cli.output import write_text
    from vramledger.report.schema import schema_text

    write_text(schema_text(document))
    return 0


command = GroupedCommand(
    "schema",
    callback=run_schema,
    help=f"The JSON Schema of what --json writes: {', '.join(schema_names())}; plan without a name.",
    params=[
        click.Argument(["document"], type=click.Choice(schema_names()), default="plan", metavar="[NAME]")
    ],
)
