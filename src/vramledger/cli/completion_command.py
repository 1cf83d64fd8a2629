"""`vramledger completion`."""

from __future__ import annotations

import click

from vramledger.cli.options import GroupedCommand

_HELP = """Print the script that lets SHELL complete commands, flags, devices, engines, built-in models and files.

\b
bash:  eval "$(vramledger completion bash)"                                     in ~/.bashrc (bash 4.4 or later)
zsh:   eval "$(vramledger completion zsh)"                                      in ~/.zshrc, after compinit
fish:  vramledger completion fish > ~/.config/fish/completions/vramledger.fish"""


def run_completion(*, shell: str) -> int:
    """Print the script."""
    from click.shell_completion import get_completion_class

    from vramledger.cli.app import cli
    from vramledger.cli.completion import VARIABLE
    from vramledger.cli.output import write_text

    found = get_completion_class(shell)
    assert found is not None
    write_text(found(cli, {}, "vramledger", VARIABLE).source())
    return 0


command = GroupedCommand(
    "completion",
    callback=run_completion,
    help=_HELP,
    params=[click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")],
)
