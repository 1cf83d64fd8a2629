"""Secrets from where a configuration says: an environment variable or a file, never from itself."""

from __future__ import annotations

import os
from pathlib import Path

from vramledger.errors import InputError, SourceError, shorter

MOST_BYTES = 4096


def secret_from(*, env: str, file: str, what: str, least_bytes: int = 1) -> bytes | None:
    """None where neither is named. Raises InputError or SourceError, without the secret."""
    if env and file:
        raise InputError(
            f"{what} is named twice, as the variable {shorter(env)} and the file {shorter(file)}"
        )
    if env:
        secret, where = (
            os.environ.get(env, "").encode("utf-8", "surrogateescape"),
            f"the variable {shorter(env)}",
        )
        if not secret:
            raise InputError(f"{what}: {where} is not set", variable=env)
    elif file:
        where = f"the file {shorter(file)}"
        try:
            with Path(file).open("rb") as opened:
                secret = opened.read(MOST_BYTES + 1)
        except OSError as problem:
            raise SourceError(f"{what}: {where} cannot be read: {problem.strerror}", source=file) from None
    else:
        return None
    secret = secret.strip()
    if not least_bytes <= len(secret) <= MOST_BYTES:
        raise InputError(
            f"{what}: {where} holds {len(secret):,} bytes; {least_bytes} to {MOST_BYTES:,} are needed"
        )
    if not all(0x21 <= byte <= 0x7E for byte in secret):
        raise InputError(f"{what}: {where} holds more than printable ASCII without blanks")
    return secret
