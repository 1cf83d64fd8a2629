"""What the page may look at while it runs: addresses given to the command that serves it, else engines of this machine alone."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from vramledger.errors import InputError, shorter
from vramledger.telemetry.web import checked_url
from vramledger.web.ask import CommandLine, typed

SHORTEST_S, LONGEST_S = 0.25, 60.0
_LONGEST_ADDRESS = 200


class Sights(Struct, frozen=True, kw_only=True):
    """`engines` and `gateways` are addresses that were given. With `own_machine` a page may name others of this machine, by their port alone:
    only where the page itself is reached from this machine alone. `logs`, `pids` and `token_env` are of the one engine that was given,
    `gateway_token_env` of the one gateway; a key never goes to an address that a page named."""

    engines: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    own_machine: bool = False
    logs: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    nvml: bool = False
    token_env: str | None = None
    gateway_token_env: str | None = None


class LiveAsk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a page wants to look at; "" is nothing."""

    engine: str = ""
    gateway: str = ""
    interval_s: float = 1.0


def sights(
    *,
    engines: Sequence[str],
    gateways: Sequence[str],
    own_machine: bool,
    logs: Sequence[str] = (),
    pids: Sequence[int] = (),
    nvml: bool = False,
    token_env: str | None = None,
    gateway_token_env: str | None = None,
) -> Sights:
    """Raises FlagError for an address that is none, InputError for what belongs to one engine or gateway where there is not one."""
    for given, of, what in (
        (
            logs or pids or token_env,
            engines,
            "--log, --pid and --token-env are of one engine: give --engine once",
        ),
        (gateway_token_env, gateways, "--gateway-token-env is of one gateway: give --gateway once"),
    ):
        if given and len(of) != 1:
            raise InputError(what, engines=len(engines), gateways=len(gateways))
    return Sights(
        engines=tuple(checked_url(each) for each in engines),
        gateways=tuple(checked_url(each) for each in gateways),
        own_machine=own_machine,
        logs=tuple(logs),
        pids=tuple(pids),
        nvml=nvml,
        token_env=token_env,
        gateway_token_env=gateway_token_env,
    )


def watch_line(ask: LiveAsk, seen: Sights) -> CommandLine:
    """`vramledger watch` for what a page asks. Raises InputError or FlagError for what is not looked at."""
    interval_s = min(max(ask.interval_s, SHORTEST_S), LONGEST_S)
    words = ["watch"]
    if ask.engine:
        url = _allowed(ask.engine, seen.engines, seen, "--engine")
        words.append(f"--url={url}")
        if url in seen.engines:
            words += [f"--pid={pid}" for pid in seen.pids]
            words += [f"--token-env={seen.token_env}"] if seen.token_env else []
    if ask.gateway:
        url = _allowed(ask.gateway, seen.gateways, seen, "--gateway")
        words.append(f"--gateway={url}")
        if url in seen.gateways and seen.gateway_token_env:
            words.append(f"--gateway-token-env={seen.gateway_token_env}")
    if len(words) == 1:
        raise InputError("there is nothing to look at: name an engine or a gateway")
    words += ["--nvml"] if seen.nvml else []
    words.append(f"--interval={interval_s:g}")
    return _line(words)


def measure_line(ask: LiveAsk, seen: Sights) -> CommandLine:
    """`vramledger measure` of the engine that a page asks for. Raises InputError or FlagError for what is not looked at."""
    if not ask.engine:
        raise InputError("there is nothing to measure: name an engine")
    url = _allowed(ask.engine, seen.engines, seen, "--engine")
    words = ["measure", f"--url={url}"]
    if url in seen.engines:
        words += [f"--log={log}" for log in seen.logs]
        words += [f"--pid={pid}" for pid in seen.pids]
        words += [f"--token-env={seen.token_env}"] if seen.token_env else []
    words += ["--nvml"] if seen.nvml else []
    return _line(words)


def _allowed(text: str, given: Sequence[str], seen: Sights, flag: str) -> str:
    if len(text) > _LONGEST_ADDRESS:
        raise InputError(f"{shorter(text)} is no address", address=shorter(text))
    url = checked_url(text.strip())
    if url in given:
        return url
    parts = urlsplit(url)
    if not seen.own_machine or not _is_own(parts.hostname or ""):
        why = "neither given nor of this machine" if seen.own_machine else "not one that was given"
        raise InputError(
            f"{url} is not looked at: it is {why}. Start the page with it: vramledger ui {flag} {shlex.quote(url)}",
            address=url,
        )
    if parts.path or parts.query or parts.scheme != "http":
        raise InputError(
            f"{url}: of this machine's servers only http://HOST:PORT is taken from a page",
            address=url,
        )
    return url


def _is_own(host: str) -> bool:
    """By its name alone: what a name leads to may change between asking and looking."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _line(words: Sequence[str]) -> CommandLine:
    return CommandLine(arguments=(*words, "--json"), shown=typed(("vramledger", *words)), is_long=True)
