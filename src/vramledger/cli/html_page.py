"""`--html FILE`: the view of the page with what the command found, as one file."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from vramledger.cli.options import OUTPUT, GroupedOption
from vramledger.report.text import Line

if TYPE_CHECKING:
    import msgspec

_Document = TypeVar("_Document", bound="msgspec.Struct")


def html_option() -> GroupedOption:
    """`--html`."""
    return GroupedOption(
        ["html_file", "--html"],
        metavar="FILE",
        help="Write the picture that `vramledger ui` shows, as one HTML file that needs no network.",
        group=OUTPUT,
    )


def write_answer(
    view: str,
    *,
    html_file: str | None,
    as_json: bool,
    document: Callable[[], _Document],
    lines: Callable[[], Iterable[Line]],
    beside: Callable[[_Document], object] | None = None,
) -> None:
    """Print an answer as its page or, `as_json`, its document, and write its view into `html_file` where one is named. Of document and page
    only what is asked for is made. Raises OutputError where the file cannot be written."""
    from vramledger.cli.output import write_document, write_page

    told = document() if as_json or html_file is not None else None
    shown = tuple(lines()) if not as_json or html_file is not None else ()
    if html_file is not None and told is not None:
        write_html(html_file, view, told, shown, beside=None if beside is None else beside(told))
    if as_json and told is not None:
        write_document(told)
    else:
        write_page(shown)


def write_html(
    name: str, view: str, document: msgspec.Struct, lines: Iterable[Line], *, beside: object = None
) -> None:
    """Write the view `view` (vramledger/web/static/views) of a document into `name`; `lines` are what the terminal shows, for who has no
    script, `beside` what the view shows that is no part of the document. Raises OutputError where it cannot be written."""
    from vramledger.web.standalone import view_page
    from vramledger.whole_file import write_whole

    made = view_page(view, document, command=typed_line(), text=tuple(lines), beside=beside)
    write_whole(Path(name), made.encode("utf-8", "replace"))


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
