"""`--html FILE`: the view of the page with what the command found, as one file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vramledger.cli.options import OUTPUT, GroupedOption
from vramledger.report.text import Line

if TYPE_CHECKING:
    import msgspec


def html_option() -> GroupedOption:
    """`--html`."""
    return GroupedOption(
        ["html_file", "--html"],
        metavar="FILE",
        help="Write the picture that `vramledger ui` shows, as one HTML file that needs no network.",
        group=OUTPUT,
    )


def write_html(
    name: str, view: str, document: msgspec.Struct, lines: Iterable[Line], *, beside: object = None
) -> None:
    """Write the view `view` (vramledger/web/static/views) of a document into `name`; `lines` are what the terminal shows, for who has no
    script, `beside` what the view shows that is no part of the document. Raises OutputError where it cannot be written."""
    from vramledger.web.standalone import write_view

    write_view(Path(name), view, document, command=typed_line(), text=tuple(lines), beside=beside)


def typed_line() -> str:
    """The command line that runs, without what says where its answer goes."""
    context = click.get_current_context(silent=True)
    words: Sequence[str] = () if context is None else context.find_root().obj or ()
    kept = []
    after = False
    for word in words:
        if not after and word != "--html" and not word.startswith("--html=") and word != "--json":
            kept.append(word)
        after = word == "--html"
    return shlex.join(["vramledger", *kept])
