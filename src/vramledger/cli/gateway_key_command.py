"""`vramledger gateway-key`."""

from __future__ import annotations

import json

import click

from vramledger.cli.options import GroupedCommand, json_option
from vramledger.cli.output import write_text

_HELP = """A new API key for the tenant NAME of a gateway.

The key is shown once, for its owner. What the gateway keeps is the other line, its SHA-256: put it under [tenants.NAME] of the
configuration and reload.
"""


def run_gateway_key(name: str, *, as_json: bool) -> None:
    """The callback of the command."""
    from vramledger.gateway.tenants.keys import new_key
    from vramledger.gateway.tenants.tenant import Tenant, Tenants

    key, known = new_key()
    Tenants({name: Tenant(keys=(known.line,))})
    table = f"tenants.{name if name.replace('-', '').replace('_', '').isalnum() else json.dumps(name)}"
    if as_json:
        write_text(json.dumps({"tenant": name, "key": key, "hash": known.line}) + "\n")
        return
    write_text(
        f'key, shown once:  {key}\nfor the gateway:  [{table}]\n                  keys = ["{known.line}"]\n'
    )


command = GroupedCommand(
    "gateway-key",
    callback=run_gateway_key,
    help=_HELP,
    params=[click.Argument(["name"], metavar="NAME"), json_option()],
)
