"""`vramledger snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vramledger.cli.html_page import html_option
from vramledger.cli.options import GENERAL, OUTPUT, GroupedCommand, GroupedOption, json_option

if TYPE_CHECKING:
    from vramledger.telemetry.snapshots import Snapshot

_HELP = """Who holds the allocator's memory, and in which pieces the rest is free.

FILE is what torch.cuda.memory._dump_snapshot(path) wrote in the serving process. It is read without torch, and a file that holds
more than plain values is refused."""

_EPILOG = """\b
Examples:
  vramledger snapshot oom.pickle
  vramledger snapshot oom.pickle --request 512MiB --device-free 120MiB
  vramledger snapshot oom.pickle --svg oom.svg
  vramledger snapshot oom.pickle --html oom.html

\b
Exit codes: 0 read; with --request 10 where it would not be served, 11 where that cannot be told;
2 wrong input, 4 unreadable source, 74 output not written.
"""


def run_snapshot(
    file: str,
    *,
    request: str | None,
    device_free: str | None,
    svg: str | None,
    blocks: bool,
    as_json: bool,
    html_file: str | None,
) -> int:
    """Read, print, draw."""
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.report.snapshot_document import Question, snapshot_document
    from vramledger.telemetry.snapshots import read_snapshot

    wanted, free = _size("request", request), _size("device-free", device_free)
    if free is not None and wanted is None:
        raise click.UsageError("--device-free says something of --request only; give that too.")
    question = None if wanted is None else Question(request_bytes=wanted, device_free_bytes=free)
    snapshot = read_snapshot(file)
    document = snapshot_document(
        snapshot, file=file, question=question, with_blocks=blocks or html_file is not None
    )
    if svg is not None:
        _draw(svg, file, snapshot)
    if html_file is not None or not as_json:
        from vramledger.report.snapshot_text import snapshot_lines

        lines = tuple(snapshot_lines(snapshot, file=file, question=question, width=page_width()))
    if html_file is not None:
        from vramledger.cli.html_page import write_html

        write_html(html_file, "snapshot", document, lines)
    if not as_json:
        write_page(lines)
    elif blocks or html_file is None:
        write_document(document)
    else:
        write_document(snapshot_document(snapshot, file=file, question=question))
    ways = [device.request.how for device in document.devices if device.request is not None]
    if None in ways:
        return 11
    return 10 if any(way in ("not at all", "only with expandable segments") for way in ways) else 0


def _size(name: str, text: str | None) -> int | None:
    from vramledger.errors import FlagError
    from vramledger.units import parse_bytes

    try:
        return None if text is None else parse_bytes(text)
    except ValueError as problem:
        raise FlagError(f"--{name}: {problem}", flag=name, value=text) from None


def _draw(svg: str, file: str, snapshot: Snapshot) -> None:
    from pathlib import Path

    from vramledger.report.snapshot_picture import snapshot_svg
    from vramledger.whole_file import write_whole

    write_whole(Path(svg), snapshot_svg(snapshot, file=file).encode())


command = GroupedCommand(
    "snapshot",
    callback=run_snapshot,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["file"], metavar="FILE"),
        GroupedOption(
            ["request", "--request"],
            metavar="SIZE",
            help="Would a request of this size be served (512MiB)?",
            group=GENERAL,
        ),
        GroupedOption(
            ["device_free", "--device-free"],
            metavar="SIZE",
            help="What the driver has free; else what the last failed request of the history saw.",
            group=GENERAL,
        ),
        GroupedOption(["svg", "--svg"], metavar="FILE", help="Draw every segment and block.", group=OUTPUT),
        GroupedOption(
            ["blocks", "--blocks"],
            is_flag=True,
            help="With --json also every segment and block, up to 60,000 blocks.",
            group=OUTPUT,
        ),
        json_option(),
        html_option(),
    ],
)
