"""A gateway's configuration: what a TOML file may say, and a command line beside it. Secrets are named, not held."""

from __future__ import annotations

import msgspec

from vramledger.errors import InputError, shorter
from vramledger.gateway.config_reading import read_struct, read_toml
from vramledger.gateway.config_sections import (
    AdminSection,
    EnvoySection,
    SaltSection,
    SharedSection,
    TelemetrySection,
    TokensSection,
    UpstreamSection,
)
from vramledger.gateway.policy_section import PolicySection
from vramledger.gateway.settings import Limits, Timeouts, Upstream, upstream_from_url
from vramledger.gateway.tenants.keys import KeyRing
from vramledger.gateway.tenants.paths import Unpriced, read_allowed
from vramledger.gateway.tenants.tenant import Tenant, Tenants

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MOST_DRAIN_S = 86_400


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that stand before the first section. Everything has a default but the upstreams."""

    listen: str = "127.0.0.1:8080"
    """HOST:PORT for clients."""
    tls_cert: str = ""
    """A file with the certificate, and those that lead to it, for clients."""
    tls_key: str = ""
    """The certificate's key, where it is not in the same file."""
    manifest: str = ""
    """A manifest of `vramledger manifest`: what the engine holds, where it does not say itself."""
    plan: str = ""
    """A plan of `vramledger plan --json`, in the place of a manifest."""
    drain_s: float = 30
    """How long requests may still run once the gateway is told to stop, in seconds."""
    allow_paths: tuple[str, ...] = ()
    """Paths that pass beside those that are known to be harmless: /PATH, /PATH/* or METHOD /PATH."""
    unpriced: Unpriced = Unpriced.REFUSE
    """What becomes of requests that generate and have no price here (audio, rerank, score, infill, batches): "refuse" or "pass"."""
    allow_elsewhere: bool = False
    """Whether bodies may make an engine connect to hosts that they name (kv_transfer_params, bootstrap_host), as routers of
    disaggregated serving do."""
    upstream: tuple[UpstreamSection, ...] = ()
    admin: AdminSection = AdminSection()
    tenants: dict[str, Tenant] = {}
    salt: SaltSection = SaltSection()
    policy: PolicySection = PolicySection()
    tokens: TokensSection = TokensSection()
    telemetry: TelemetrySection = TelemetrySection()
    shared: SharedSection = SharedSection()
    envoy: EnvoySection = EnvoySection()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()

    def __post_init__(self) -> None:
        for name in ("listen", "admin.listen"):
            text = self.listen if name == "listen" else self.admin.listen
            if text or name == "listen":
                address(text, name)
        if self.envoy.listen and not self.envoy.listen.startswith("unix:"):
            address(self.envoy.listen, "envoy.listen")
        if not 0 <= self.drain_s <= MOST_DRAIN_S:
            raise InputError(f"drain_s is {self.drain_s}: it lies within 0 and {MOST_DRAIN_S}")
        if self.tls_key and not self.tls_cert:
            raise InputError("tls_key is given without tls_cert")
        for path in self.allow_paths:
            read_allowed(path)
        for one in self.upstream:
            upstream_from_url(one.url)
        if self.envoy.endpoints and len(self.envoy.endpoints) != len(self.upstream):
            raise InputError("envoy.endpoints has to name each upstream's address, in their order")
        names = [one.label for one in self.upstream]
        if len(set(names)) < len(names):
            raise InputError("two upstreams have one name or address")
        KeyRing(Tenants(self.tenants).hashes)
        for section in (self.limits, self.timeouts):
            for field in msgspec.structs.fields(section):
                value = getattr(section, field.name)
                if (
                    not (0 if field.name in ("queued", "idle_upstream", "queued_ms") else 1)
                    <= value
                    < 1 << 53
                ):
                    raise InputError(f"{field.name} is {value}: that is no sensible bound")

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        return tuple(upstream_from_url(one.url) for one in self.upstream)


FIXED = (
    "listen",
    "tls_cert",
    "tls_key",
    "manifest",
    "plan",
    "upstream",
    "admin",
    "salt",
    "tokens",
    "telemetry",
    "shared",
    "envoy",
)
"""Settings that hold for as long as the gateway runs."""


def read_config(text: bytes, source: str) -> GatewayConfig:
    """Raises InputError naming the line or the key that is wrong."""
    return read_struct(GatewayConfig, read_toml(text, source), source)


def fixed_changes(before: GatewayConfig, after: GatewayConfig) -> tuple[str, ...]:
    """What differs and cannot be changed while the gateway runs."""
    return tuple(name for name in FIXED if getattr(before, name) != getattr(after, name))


def address(text: str, name: str) -> tuple[str, int]:
    """HOST:PORT, [HOST]:PORT or PORT alone. Raises InputError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if (
        not port.isdecimal()
        or not port.isascii()
        or len(port) > 5
        or int(port) > 65_535
        or (host and not colon)
    ):
        raise InputError(f"{name} is {shorter(text)}: HOST:PORT is needed", value=text)
    return host or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")
