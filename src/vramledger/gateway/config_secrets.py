"""What a configuration names and does not hold: keys of engines, certificates, the admin port's token, the salts' secret."""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path

import msgspec

from vramledger.errors import InputError
from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.config_sections import Salt
from vramledger.gateway.secret_sources import secret_from
from vramledger.gateway.settings import Upstream, upstream_from_url

LEAST_TOKEN_BYTES = 16
LEAST_SALT_BYTES = 16


def upstreams_of(config: GatewayConfig) -> tuple[Upstream, ...]:
    """Addresses with the keys that engines want. Raises InputError or SourceError for a key that is not there."""
    if not config.upstream:
        raise InputError(
            "no engine is named: give --upstream http://HOST:PORT, or [[upstream]] in the configuration"
        )
    found = []
    for one in config.upstream:
        key = secret_from(env=one.key_env, file=one.key_file, what=f"the key of {one.label}")
        upstream = upstream_from_url(one.url)
        authorization = b"Bearer " + key if key is not None else b""
        found.append(msgspec.structs.replace(upstream, authorization=authorization))
    return tuple(found)


def tls_context(config: GatewayConfig) -> ssl.SSLContext | None:
    """For clients; None where they speak plainly. Raises InputError for a certificate that is not one."""
    if not config.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key or None, password=no_password)
    except (OSError, ssl.SSLError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or str(problem)
        raise InputError(
            f"the certificate {Path(config.tls_cert).name} cannot be used: {reason}", file=config.tls_cert
        ) from None
    return context


def no_password() -> str:
    """What a certificate's loader is given to ask: nobody types one."""
    raise ValueError("its key has a password")


def admin_token(config: GatewayConfig) -> bytes | None:
    """None where the port asks for none. Raises InputError or SourceError for one that is not there."""
    return secret_from(
        env=config.admin.token_env,
        file=config.admin.token_file,
        what="the admin token",
        least_bytes=LEAST_TOKEN_BYTES,
    )


def salt_secret(config: GatewayConfig) -> bytes | None:
    """A new one where none is named; None where tenants share prefixes. Raises InputError or SourceError for one that is not there."""
    if config.salt.mode is Salt.OFF:
        return None
    named = secret_from(
        env=config.salt.secret_env,
        file=config.salt.secret_file,
        what="the secret of cache salts",
        least_bytes=LEAST_SALT_BYTES,
    )
    return named or secrets.token_bytes(32)
