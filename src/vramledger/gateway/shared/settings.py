"""How gateways share: where the store is, how long leases last, and what a gateway without the store does."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import msgspec

from vramledger.errors import InputError, shorter


class WhenLost(StrEnum):
    """What a gateway admits that has not reached the store for so long that it may no longer rely on its grant."""

    STOP = "stop"
    """Nothing more: what it admitted runs on. The only answer under which no block is ever given twice."""
    GRANT = "grant"
    """What it was granted last. Right where the store is away for everybody, wrong where only this gateway cannot reach it."""
    SHARE = "share"
    """A fixed part of the instance, from the beginning. Right where the parts of all gateways are no more than the whole, and once what
    was admitted on larger grants has ended."""


class SharingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Equal on all gateways of an instance, but for `share`. Raises InputError for what contradicts itself.

    `namespace` begins every key. A grant lasts `lease_ms` in the store and is relied on for half of that. It is renewed every
    `heartbeat_ms`; who waits for more asks every `hungry_ms`. A call that takes `timeout_ms` failed.
    Grants are in pieces of a `chunks`-th part of the instance, at least of one block and one place.
    """

    namespace: str = "vramledger"
    lease_ms: int = 10_000
    heartbeat_ms: int = 500
    hungry_ms: int = 50
    timeout_ms: int = 500
    chunks: int = 64
    when_lost: WhenLost = WhenLost.STOP
    share: float = 0.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", self.namespace):
            raise InputError(
                f"namespace is {shorter(self.namespace)}: up to 64 letters, digits, '.', '_' and '-' are needed"
            )
        if not 100 <= self.lease_ms <= 3_600_000:
            raise InputError(f"lease_ms is {self.lease_ms}: from 100 (0.1 s) to 3600000 (an hour) is needed")
        for name in ("heartbeat_ms", "hungry_ms", "timeout_ms", "chunks"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: at least 1 is needed")
        if self.heartbeat_ms + self.timeout_ms > self.lease_ms // 4:
            raise InputError(
                f"heartbeat_ms {self.heartbeat_ms} and timeout_ms {self.timeout_ms} are more than a quarter of lease_ms "
                f"{self.lease_ms}: one lost call would end what is relied on"
            )
        if not 0 <= self.share <= 1 or (self.when_lost is WhenLost.SHARE and self.share == 0):
            raise InputError(
                f"share is {self.share}: a part above 0 and up to 1 is needed where when_lost is share"
            )

    @classmethod
    def of_lease(cls, lease_ms: int, **more: Any) -> SharingSettings:
        """With a heartbeat and a time for calls that go with the lease: a twentieth of it, half a second at the most."""
        often_ms = max(1, min(500, lease_ms // 20))
        return cls(lease_ms=lease_ms, heartbeat_ms=often_ms, timeout_ms=often_ms, **more)

    @property
    def spend_ns(self) -> int:
        """How long after a call began that was answered its grant is relied on."""
        return self.lease_ms * 500_000

    @property
    def covered_ns(self) -> int:
        """How long after it what runs is surely counted in the store, also where the server's time was set forward once meanwhile."""
        return self.lease_ms * 750_000
