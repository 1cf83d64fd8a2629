"""Where traces go, and of how many requests."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from vramledger.errors import InputError, shorter


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`endpoint` takes OTLP over HTTP (http://HOST:4318/v1/traces); `headers` are sent with each export and told to nobody.

    `ratio` of the requests that begin a trace are recorded; one that continues a client's trace follows the client's choice, unless
    `follow_client` is false. `queue_spans` bounds what waits to be sent; more are lost and counted. `prefix_secret` keys the
    identities of prefixes, which are then the same after a restart. Raises InputError for what cannot be.
    """

    endpoint: str
    headers: Mapping[str, str] = {}
    ratio: float = 0.1
    follow_client: bool = True
    service_name: str = "vramledger-gateway"
    queue_spans: int = 4096
    timeout_s: float = 5.0
    prefix_secret: bytes | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise InputError(
                f"the ratio of traces is {self.ratio}: a share from 0 to 1 is needed", ratio=self.ratio
            )
        if self.queue_spans < 1 or not self.timeout_s > 0:
            raise InputError("queue_spans and timeout_s of traces are to be above 0")
        try:
            parts = urlsplit(self.endpoint)
            bad = parts.scheme not in ("http", "https") or not parts.hostname or (parts.port or 1) < 1
        except ValueError:
            bad = True
        if bad or "@" in self.endpoint:
            raise InputError(
                f"the endpoint of traces {shorter(self.endpoint)} is not of the form http://HOST:4318/v1/traces"
            )
