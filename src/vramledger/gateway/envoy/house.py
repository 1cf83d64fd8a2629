"""What all requests of one processor share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk
from vramledger.gateway.envoy.messages import Said
from vramledger.gateway.record import Observers
from vramledger.gateway.settings import Limits, Timeouts
from vramledger.gateway.stages import Doorkeeper, PromptCounter


class Channel(Protocol):
    """One gRPC stream: None is its end, and cancellation its loss."""

    async def read(self) -> Said | None: ...

    async def write(self, data: bytes) -> None: ...


class House:
    """`endpoints` are the engines as IP:PORT, in the order of the policy's instances; without any, Envoy routes as it is configured."""

    def __init__(
        self,
        desk: AdmissionDesk,
        *,
        doorkeeper: Doorkeeper | None,
        counter: PromptCounter | None,
        observers: Observers | None,
        limits: Limits,
        timeouts: Timeouts,
        counters: Counters,
        endpoints: Sequence[str],
        watch_streams: bool,
        clock_ns: Callable[[], int],
    ) -> None:
        self.desk = desk
        self.doorkeeper = doorkeeper
        self.counter = counter
        self.observers = observers
        self.limits = limits
        self.timeouts = timeouts
        self.counters = counters
        self.endpoints = tuple(endpoints)
        self.watch_streams = watch_streams
        self.clock_ns = clock_ns
        self.engine = ""
        """Whose reading of requests goes, as `vramledger.engines` names it; "" where engines differ or nobody knows."""
        self.held_bytes = 0
        """Of request bodies of all streams, until they are let in."""
        self.closing = False
        """Whether it is the processor that ends what it watches."""
