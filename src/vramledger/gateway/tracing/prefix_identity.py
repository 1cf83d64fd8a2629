"""Identities of prefixes that may leave the gateway: equal for equal prefixes of one tenant, and nothing can be learned from them."""

from __future__ import annotations

import secrets
from hashlib import blake2b


class PrefixIdentity:
    """Keyed, so that nobody can try texts against them; by tenant, so that tenants' prefixes cannot be compared."""

    def __init__(self, secret: bytes | None = None) -> None:
        """A `secret` of any length; without one identities hold for this process alone."""
        self._key = blake2b(secret, digest_size=32).digest() if secret else secrets.token_bytes(32)

    def of(self, tenant: int, key: int) -> str:
        """16 hexadecimal digits for a block's chained identity."""
        said = b"%d %d" % (tenant, key)
        return blake2b(said, key=self._key, digest_size=8).hexdigest()
