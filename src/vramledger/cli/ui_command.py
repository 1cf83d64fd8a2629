"""`vramledger ui`."""

from __future__ import annotations

import click

from vramledger.cli.measure_command import token_of
from vramledger.cli.options import GENERAL, GroupedCommand, GroupedOption

_HELP = """The page: plan with sliders, compare, fit, capacity, a live engine, diagnose. Local, without any network.

It listens on this machine alone. On another address (--host) it asks for a key, which it prints, and answers only to the names
given with --name. Files that are dropped on it are kept in a temporary folder until it ends; its commands can read nothing else.

Live looks at what is given here (--engine, --gateway), and, where the page listens on this machine alone, at other engines and gateways
of this machine that are named in the page. Keys (--token-env) go to what is given here alone."""

_EPILOG = """\b
Examples:
  vramledger ui
  vramledger ui --port 9000 --no-open
  vramledger ui --host 0.0.0.0 --name gpu-box.lan
  vramledger ui --engine http://127.0.0.1:8000 --log vllm.log --nvml --gateway http://127.0.0.1:8099
  ssh -L 8417:127.0.0.1:8417 gpu-box vramledger ui --no-open

\b
Exit codes: 0 ended with Ctrl-C or SIGTERM; 2 wrong input, or the address is taken.
"""
PORT = 8417
_LIVE = "What Live looks at"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def run_ui(
    *,
    host: str,
    port: int,
    names: tuple[str, ...],
    open_page: bool,
    engines: tuple[str, ...],
    gateways: tuple[str, ...],
    logs: tuple[str, ...],
    pids: tuple[int, ...],
    nvml: bool,
    token_env: str | None,
    gateway_token_env: str | None,
) -> int:
    """Serve until told to end."""
    import secrets
    import socket
    import sys
    from contextlib import suppress
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from vramledger.cli.output import write_message
    from vramledger.cli.termination import ends_when_told
    from vramledger.errors import InputError

    try:
        import starlette as _starlette
        import uvicorn as _uvicorn
    except ImportError:
        raise InputError(
            "the page needs the extra `web`: pip install 'vramledger[web]'", extra="web"
        ) from None
    from vramledger.web.app import make_app, names_of
    from vramledger.web.guard import Door
    from vramledger.web.server import Server
    from vramledger.web.sights import sights
    from vramledger.web.workers import Workers

    del _starlette, _uvicorn
    for variable in (token_env, gateway_token_env):
        token_of(variable)
    is_local = host in _LOOPBACK
    seen = sights(
        engines=engines,
        gateways=gateways,
        own_machine=is_local,
        logs=logs,
        pids=pids,
        nvml=nvml,
        token_env=token_env,
        gateway_token_env=gateway_token_env,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except OSError as problem:
        listening.close()
        raise InputError(
            f"--host {host} --port {port}: {problem.strerror or problem}", host=host, port=port
        ) from None
    bound = listening.getsockname()[1]
    key = None if is_local else secrets.token_urlsafe(24)
    door = Door(names=names_of((*_LOOPBACK, host, *names), bound), token=secrets.token_urlsafe(24), key=key)
    named = names[0] if names else host
    address = f"http://{f'[{named}]' if ':' in named else named}:{bound}/" + (f"?key={key}" if key else "")
    # The server hands a signal on when it has ended: the folder goes then too.
    with (
        suppress(KeyboardInterrupt, SystemExit),
        ends_when_told(),
        TemporaryDirectory(prefix="vramledger-ui-") as folder,
    ):
        # Without the folder where this was started among the places that modules come from (-P): a worker may read those.
        worker = [sys.executable, "-P", "-m", "vramledger.cli.worker", folder]
        app, end = make_app(
            door=door,
            workers=Workers(worker),
            folder=Path(folder),
            sights=seen,
            command=[sys.executable, "-P", "-m", "vramledger"],
        )
        server = Server(app, end=end)
        write_message(f"the page is at {address} (Ctrl-C ends it)")
        try:
            if open_page:
                _show(address)
            server.run(sockets=[listening])
        finally:
            listening.close()
    return 0


def _show(address: str) -> None:
    """Open a browser where there is one to open; a machine without a display has none."""
    import os
    import sys
    import threading
    import webbrowser

    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return
    threading.Timer(0.5, webbrowser.open, (address,)).start()


command = GroupedCommand(
    "ui",
    callback=run_ui,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        GroupedOption(["host", "--host"], default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.", group=GENERAL),
        GroupedOption(["port", "--port"], type=click.IntRange(0, 65535), default=PORT, show_default=True, metavar="N", help="Port to listen on; 0 takes a free one.", group=GENERAL),
        GroupedOption(["names", "--name"], multiple=True, metavar="NAME", help="A name by which browsers reach this machine; may be repeated.", group=GENERAL),
        GroupedOption(["open_page", "--open/--no-open"], default=True, help="Open the page in a browser where this machine has a display.", group=GENERAL),
        GroupedOption(["engines", "--engine"], multiple=True, metavar="URL", help="A running engine that Live may look at; may be repeated.", group=_LIVE),
        GroupedOption(["gateways", "--gateway"], multiple=True, metavar="URL", help="Admin address of a vramledger gateway that Live may look at; may be repeated.", group=_LIVE),
        GroupedOption(["logs", "--log"], multiple=True, metavar="FILE", help="The log of --engine: its memory by owner.", group=_LIVE),
        GroupedOption(["pids", "--pid"], multiple=True, type=click.IntRange(min=1), metavar="PID", help="The process of --engine: host memory.", group=_LIVE),
        GroupedOption(["nvml", "--nvml"], is_flag=True, help="This machine's devices.", group=_LIVE),
        GroupedOption(["token_env", "--token-env"], metavar="NAME", help="Environment variable with the key of --engine.", group=_LIVE),
        GroupedOption(["gateway_token_env", "--gateway-token-env"], metavar="NAME", help="Environment variable with the token of --gateway.", group=_LIVE),
    ],
)  # fmt: skip
