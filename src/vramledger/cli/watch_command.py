"""`vramledger watch`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from vramledger.cli.measure_command import token_of, token_option
from vramledger.cli.options import GENERAL, FiniteRange, GroupedCommand, GroupedOption, json_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from vramledger.gateway.onlooker import Moment, Onlooker

_HELP = """A running engine, the gateway before it and this machine, looked at again and again: free blocks, running and waiting
requests, preemptions, each decision as it falls with its reason.

Of an engine (--url) its metrics are read, of a gateway (--gateway, its admin address) its books and the newest requests. Until Ctrl-C,
or --looks of them. With --json each look is one line."""

_EPILOG = """\b
Examples:
  vramledger watch --url http://127.0.0.1:8000
  vramledger watch --url http://127.0.0.1:8000 --gateway http://127.0.0.1:8099 --interval 0.5
  vramledger watch --gateway http://127.0.0.1:8099 --gateway-token-env ADMIN_TOKEN --json
  vramledger watch --url http://127.0.0.1:8000 --nvml --pid 4711 --looks 1

\b
Exit codes: 0 looked; 2 wrong input, 4 nothing ever answered.
"""


def run_watch(
    *,
    url: str | None,
    gateway: str | None,
    pids: tuple[int, ...],
    nvml: bool,
    engine: str | None,
    interval: float,
    looks: int | None,
    token_env: str | None,
    gateway_token_env: str | None,
    as_json: bool,
) -> int:
    """Look until told to end."""
    from vramledger.cli.termination import ends_when_told
    from vramledger.engines import engine_name
    from vramledger.gateway.onlooker import Onlooker
    from vramledger.telemetry.web import checked_url

    if url is None and gateway is None and not pids and not nvml:
        raise click.UsageError("Nothing to look at: give --url, --gateway, --pid or --nvml.")
    with (
        Onlooker(
            url=None if url is None else checked_url(url),
            gateway_url=None if gateway is None else checked_url(gateway),
            pids=pids,
            nvml=nvml,
            engine=None if engine is None else engine_name(engine),
            token=token_of(token_env),
            gateway_token=token_of(gateway_token_env),
        ) as onlooker,
        ends_when_told(),
        suppress(KeyboardInterrupt, SystemExit),
    ):
        _look(onlooker, interval, looks, _json_writer() if as_json else _text_writer())
    return 0 if onlooker.answered else 4


def _look(onlooker: Onlooker, interval: float, looks: int | None, write: Callable[[Moment], None]) -> None:
    due_s = time.monotonic()
    left = looks
    while left is None or left > 0:
        write(onlooker.look(time.time()))
        left = None if left is None else left - 1
        if left == 0:
            return
        due_s = max(due_s + interval, time.monotonic())
        time.sleep(max(0.0, due_s - time.monotonic()))


def _json_writer() -> Callable[[Moment], None]:
    import msgspec

    from vramledger.cli.output import escaped, write_text
    from vramledger.report.moment_document import moment_document

    def write(moment: Moment) -> None:
        write_text(escaped(msgspec.json.encode(moment_document(moment)).decode()) + "\n")

    return write


def _text_writer() -> Callable[[Moment], None]:
    from vramledger.cli.output import page_width, write_page
    from vramledger.report.moment_text import moment_lines

    before: list[Moment] = []

    def write(moment: Moment) -> None:
        write_page(moment_lines(moment, width=page_width(), before=before[-1] if before else None))
        before[:] = [moment]

    return write


command = GroupedCommand(
    "watch",
    callback=run_watch,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        GroupedOption(["url", "--url"], metavar="URL", help="A running engine: its metrics.", group="What is looked at"),
        GroupedOption(["gateway", "--gateway"], metavar="URL", help="The admin address of a vramledger gateway.", group="What is looked at"),
        GroupedOption(["pids", "--pid"], multiple=True, type=click.IntRange(min=1), metavar="PID", help="Host memory of a process and all that it started.", group="What is looked at"),
        GroupedOption(["nvml", "--nvml"], is_flag=True, help="This machine's devices.", group="What is looked at"),
        GroupedOption(["engine", "--engine"], metavar="NAME", help="Which engine it is, where it does not say.", group=GENERAL),
        GroupedOption(["interval", "--interval"], type=FiniteRange(min=0.1, max=3600), default=1.0, show_default=True, metavar="SECONDS", help="Time between two looks.", group=GENERAL),
        GroupedOption(["looks", "--looks"], type=click.IntRange(min=1), metavar="N", help="How many; until Ctrl-C otherwise.", group=GENERAL),
        token_option(),
        GroupedOption(["gateway_token_env", "--gateway-token-env"], metavar="NAME", help="Environment variable with the token of the gateway's admin port.", group=GENERAL),
        json_option(),
    ],
)  # fmt: skip
