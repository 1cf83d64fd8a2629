"""`vramledger gateway`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vramledger.cli.gateway_options import config_of, gateway_options
from vramledger.cli.options import OUTPUT, GroupedCommand, GroupedOption
from vramledger.errors import InputError
from vramledger.units import counted

if TYPE_CHECKING:
    from vramledger.gateway.config import GatewayConfig
    from vramledger.gateway.service import GatewayService

_HELP = """A proxy before live engines: OpenAI-compatible requests are let in when there is room for them, wait their turn, or are told at
once that they cannot be served.

SIGTERM or Ctrl-C lets what runs end (--drain), a second one ends at once. SIGHUP, or POST /reload on the admin port, reads the
configuration anew, all of it or nothing; open streams are not touched.
"""

_EPILOG = """\b
Examples:
  vramledger gateway --upstream http://127.0.0.1:8000
  vramledger gateway --config gateway.toml --listen 0.0.0.0:8080
  vramledger gateway --upstream http://a:8000 --upstream http://b:8000 --upstream-key-env VLLM_API_KEY
  vramledger gateway-key alice

\b
Exit codes: 0 everything ended by itself; 130 (Ctrl-C) or 143 (SIGTERM) requests were cut off; 2 wrong input, 4 unreadable source.
"""


def run_gateway(*, check: bool, as_json: bool, **flags: Any) -> int:
    """The callback of the command."""
    import asyncio

    from vramledger.cli.event_lines import EventLines

    _need_parser()
    lines = EventLines(as_json=as_json)
    config = config_of(flags)
    with lines.logging():
        if check:
            lines.say("checked", *_described(config))
            return 0
        return asyncio.run(_serve(config, flags, lines.say))


def _need_parser() -> None:
    try:
        import httptools  # noqa: F401
    except ImportError:
        raise InputError(
            "the gateway's HTTP parser is not installed: pip install 'vramledger[gateway]'",
            package="httptools",
        ) from None


async def _serve(config: GatewayConfig, flags: dict[str, Any], say: Any) -> int:
    from vramledger.cli.gateway_plan import planned_from
    from vramledger.cli.gateway_running import run_until_told
    from vramledger.gateway.assembly import assembled

    service = await assembled(config, planned=planned_from(config), reread=lambda: config_of(flags), told=say)
    await service.start()
    for event in _started(service):
        say(*event)
    return await run_until_told(service, say)


def _described(config: GatewayConfig) -> tuple[str, dict[str, Any]]:
    from vramledger.gateway.config_secrets import tls_context, upstreams_of

    upstreams = upstreams_of(config)
    tls_context(config)
    names = [one.label for one in config.upstream]
    tenants = counted(len(config.tenants), "tenant") if config.tenants else "everybody is one tenant"
    return f"the configuration is in order: {', '.join(names)}; {tenants}", {
        "upstreams": len(upstreams),
        "tenants": len(config.tenants),
    }


def _started(service: GatewayService) -> Iterator[tuple[str, str, dict[str, Any]]]:
    config, gateway = service.config, service.gateway
    scheme = "https" if config.tls_cert else "http"
    names = [one.label for one in config.upstream]
    where = f"{scheme}://{_host(config.listen)}:{gateway.port}"
    yield (
        "started",
        f"clients ask {where}; engines: {', '.join(names)}",
        {"port": gateway.port, "upstreams": names},
    )
    if service.processor is not None:
        listen, port = config.envoy.listen, service.processor.port
        where = f"{_host(listen)}:{port}" if port else listen
        yield "envoy", f"Envoy's ext_proc filter asks {where}", {"port": port}
    if service.admin is not None:
        port = service.admin.port
        told = f"metrics, state, drain and reload: http://{_host(config.admin.listen)}:{port}"
        yield "admin", told, {"port": port}
    if not config.tenants:
        yield (
            "tenants",
            "no tenants are configured: everybody is one, and no key is asked for",
            {"tenants": []},
        )
        return
    yield "tenants", f"tenants: {', '.join(config.tenants)}", {"tenants": list(config.tenants)}
    nobody = list(service.door.tenants.without_keys())
    if nobody:
        told = f"without a key, and so shut out: {', '.join(nobody)} (vramledger gateway-key)"
        yield "tenants-without-keys", told, {"tenants": nobody}


def _host(listen: str) -> str:
    return listen.rpartition(":")[0] or "127.0.0.1"


command = GroupedCommand(
    "gateway",
    callback=run_gateway,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        *gateway_options(),
        GroupedOption(
            ["as_json", "--json"],
            is_flag=True,
            help="Print what happens as JSON, one object a line, instead of text.",
            group=OUTPUT,
        ),
    ],
)
