"""The processor beside a gateway, as its configuration says: one desk, one policy, one door for both."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from vramledger.errors import InputError, SourceError
from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.config_sections import EnvoySection, endpoint_of
from vramledger.gateway.envoy.ext_proc import ProcessorTls, serve_ext_proc
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.stages import Doorkeeper, PromptCounter

if TYPE_CHECKING:
    from vramledger.gateway.envoy.server import ExtProcServer

MOST_PEM_BYTES = 1 << 20


async def processor_beside(
    gateway: Gateway,
    config: GatewayConfig,
    *,
    doorkeeper: Doorkeeper | None,
    counter: PromptCounter | None,
) -> ExtProcServer | None:
    """None where the configuration has none. Raises InputError for an address or a certificate that cannot be used, and SourceError."""
    if not config.envoy.listen:
        return None
    return await serve_ext_proc(
        gateway.desk,
        config.envoy.listen,
        doorkeeper=doorkeeper,
        counter=counter,
        observers=[gateway.observers] if gateway.observers is not None else [],
        limits=config.limits,
        timeouts=config.timeouts,
        counters=gateway.counters,
        endpoints=endpoints_of(config),
        watch_streams=config.envoy.watch_streams,
        tls=_tls(config.envoy),
    )


def endpoints_of(config: GatewayConfig) -> tuple[str, ...]:
    """By place. None for one engine that is known by name, for there is nothing to choose; several need addresses, or InputError says so."""
    if config.envoy.endpoints:
        return tuple(endpoint_of(endpoint, "envoy.endpoints") for endpoint in config.envoy.endpoints)
    upstreams = config.upstreams
    try:
        addresses = [ip_address(upstream.host) for upstream in upstreams]
    except ValueError:
        if len(upstreams) == 1:
            return ()
        raise InputError(
            "envoy.endpoints is needed: Envoy is told which engine was chosen by its IP:PORT, and upstreams are given by name"
        ) from None
    return tuple(
        f"[{address}]:{upstream.port}" if address.version == 6 else f"{address}:{upstream.port}"
        for address, upstream in zip(addresses, upstreams, strict=True)
    )


def _tls(section: EnvoySection) -> ProcessorTls | None:
    if not section.tls_cert:
        return None
    return ProcessorTls(
        certificate=_pem(section.tls_cert, "envoy.tls_cert"),
        key=_pem(section.tls_key or section.tls_cert, "envoy.tls_key"),
        client_roots=_pem(section.client_ca, "envoy.client_ca") if section.client_ca else None,
    )


def _pem(file: str, name: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(MOST_PEM_BYTES + 1)
    except OSError as problem:
        raise SourceError(
            f"{name}: the file {Path(file).name} cannot be read: {problem.strerror}", source=file
        ) from None
    if len(text) > MOST_PEM_BYTES or b"-----BEGIN " not in text:
        raise InputError(f"{name}: the file {Path(file).name} is not PEM", file=file)
    return text
