"""What the command line says of a gateway, laid over what its file says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vramledger.cli.options import GENERAL, FiniteRange, GroupedOption
from vramledger.errors import InputError, SourceError

if TYPE_CHECKING:
    from vramledger.gateway.config import GatewayConfig

ENGINES, CLIENTS, ADMIN = "Engines", "Clients", "Operation"


def gateway_options() -> list[GroupedOption]:
    """The flags of `vramledger gateway`; each has its setting in the file."""
    return [
        _text("config", "FILE", "A configuration (TOML). Flags go before it.", GENERAL),
        _text("listen", "HOST:PORT", "Where clients ask; 127.0.0.1:8080 by default.", GENERAL),
        _many("upstream", "URL", "An engine, http://HOST:PORT. Several share the load.", ENGINES),
        _text("engine", "NAME", "Which engine it is, where it does not say: vllm, sglang, llamacpp, tensorrt-llm.", ENGINES),
        _text("upstream_key_env", "NAME", "Environment variable with the key that the engines want.", ENGINES),
        GroupedOption(
            ["pool_tokens", "--pool-tokens"],
            type=click.IntRange(min=1),
            metavar="N",
            help="KV tokens of each engine's pool, where it does not say.",
            group=ENGINES,
        ),
        _text("manifest", "FILE", "A manifest: what the engine holds, where it does not say.", ENGINES),
        _text("plan", "FILE", "A plan (vramledger plan --json), in the place of a manifest.", ENGINES),
        _text("goal", "NAME", "What the policy is chosen for: deadlines, throughput or no-failure.", ENGINES),
        _text("policy", "NAME", "How output is reserved (no-evict, quantile, risk, optimistic), or nobody: all are let in.", ENGINES),
        _text("tls_cert", "FILE", "Certificate for clients (PEM).", CLIENTS),
        _text("tls_key", "FILE", "Its key, where it is not in the same file.", CLIENTS),
        _many("allow_path", "[METHOD ]PATH", "A path that passes beside the known ones; /PATH/* for all beneath.", CLIENTS),
        GroupedOption(
            ["unpriced", "--unpriced"],
            type=click.Choice(["refuse", "pass"]),
            help="What becomes of requests that generate and have no price here (audio, rerank, ...).",
            group=CLIENTS,
        ),
        _text("admin", "HOST:PORT", 'Metrics, state, drain and reload; 127.0.0.1:8099 by default, "" for none.', ADMIN),
        _text("admin_token_env", "NAME", "Environment variable with the admin port's token.", ADMIN),
        GroupedOption(
            ["drain", "--drain"],
            type=FiniteRange(min=0, max=86_400),
            metavar="SECONDS",
            help="How long requests may still run once it is told to stop; 30 by default.",
            group=ADMIN,
        ),
        _text("request_log", "FILE", "A line of JSON for each request; nothing of prompts, outputs or keys.", ADMIN),
        _text("traces", "URL", "Where traces go, OTLP over HTTP: http://HOST:4318/v1/traces.", ADMIN),
        GroupedOption(["check", "--check"], is_flag=True, help="Read the configuration, say what it means, and end.", group=ADMIN),
    ]  # fmt: skip


def config_of(flags: Mapping[str, Any]) -> GatewayConfig:
    """The configuration of the file with the flags laid over it. Raises InputError or SourceError."""
    from vramledger.gateway.config import GatewayConfig
    from vramledger.gateway.config_reading import MOST_BYTES, read_struct, read_toml

    source = "the command line"
    values: dict[str, Any] = {}
    if flags.get("config"):
        source = str(flags["config"])
        try:
            with Path(source).open("rb") as opened:
                values = read_toml(opened.read(MOST_BYTES + 1), source)
        except OSError as problem:
            raise SourceError(f"{source} cannot be read: {problem.strerror}", source=source) from None
    _lay_over(values, flags)
    return read_struct(GatewayConfig, values, source)


def _lay_over(values: dict[str, Any], flags: Mapping[str, Any]) -> None:
    for flag, path in _PATHS.items():
        given = flags.get(flag)
        if given is not None and given != ():
            table = values
            for name in path[:-1]:
                table = _table(table, name)
            table[path[-1]] = list(given) if isinstance(given, tuple) else given
    policy = flags.get("policy")
    if policy is not None:
        section = _table(values, "policy")
        section.update({"decided_by": "nobody"} if policy == "nobody" else {"reservation": policy})
    if flags.get("upstream"):
        values["upstream"] = [{"url": url if "://" in url else f"http://{url}"} for url in flags["upstream"]]
    for flag, name in (("engine", "engine"), ("upstream_key_env", "key_env"), ("pool_tokens", "pool_tokens")):
        upstreams = values.get("upstream")
        if flags.get(flag) is not None and isinstance(upstreams, list):
            for one in upstreams:
                if isinstance(one, dict):
                    one[name] = flags[flag]


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Made where it is not there. Raises InputError where something else is."""
    table = values.setdefault(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{name} is no table, but a flag says something of what is in it")
    return table


_PATHS: Mapping[str, tuple[str, ...]] = {
    "listen": ("listen",),
    "manifest": ("manifest",),
    "plan": ("plan",),
    "goal": ("policy", "goal"),
    "tls_cert": ("tls_cert",),
    "tls_key": ("tls_key",),
    "allow_path": ("allow_paths",),
    "unpriced": ("unpriced",),
    "admin": ("admin", "listen"),
    "admin_token_env": ("admin", "token_env"),
    "drain": ("drain_s",),
    "request_log": ("telemetry", "request_log"),
    "traces": ("telemetry", "traces_endpoint"),
}


def _text(name: str, metavar: str, text: str, group: str) -> GroupedOption:
    return GroupedOption([name, f"--{name.replace('_', '-')}"], metavar=metavar, help=text, group=group)


def _many(name: str, metavar: str, text: str, group: str) -> GroupedOption:
    return GroupedOption(
        [name, f"--{name.replace('_', '-')}"], multiple=True, metavar=metavar, help=text, group=group
    )
