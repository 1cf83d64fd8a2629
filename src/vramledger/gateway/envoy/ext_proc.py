"""Where an external processor is started. gRPC is imported here only when one is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from vramledger.errors import InputError
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk
from vramledger.gateway.envoy.house import House
from vramledger.gateway.record import Observer, Observers
from vramledger.gateway.settings import Limits, Timeouts
from vramledger.gateway.stages import Doorkeeper, PromptCounter

if TYPE_CHECKING:
    from vramledger.gateway.envoy.server import ExtProcServer


class ProcessorTls(msgspec.Struct, frozen=True, kw_only=True):
    """PEM. With `client_roots`, an Envoy that cannot show a certificate signed by one of them is not served."""

    certificate: bytes
    key: bytes
    client_roots: bytes | None = None

    def __repr__(self) -> str:
        return f"ProcessorTls(mutual={self.client_roots is not None})"


async def serve_ext_proc(
    desk: AdmissionDesk,
    listen: str,
    *,
    doorkeeper: Doorkeeper | None = None,
    counter: PromptCounter | None = None,
    observers: Sequence[Observer] = (),
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    counters: Counters | None = None,
    endpoints: Sequence[str] = (),
    watch_streams: bool = True,
    tls: ProcessorTls | None = None,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> ExtProcServer:
    """Listens at HOST:PORT (port 0 takes a free one) or unix:PATH, with `close()` and `drain(within_s)`.

    `desk` may be a gateway's own: proxy and processor then share policy, queue and numbers; give its `timeouts`, `counters` and clock too.
    `endpoints` are the engines as IP:PORT in the order of the policy's instances: the chosen one is told to Envoy in the header and
    the dynamic metadata of the Gateway API Inference Extension's endpoint pickers. Without `watch_streams` the pieces of streams pass unseen:
    that costs nothing for each, but neither lengths nor errors inside them are known. An InputError names an address that cannot
    be had, and the extra where gRPC is not installed.
    """
    try:
        from vramledger.gateway.envoy import server
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("grpc", "grpc_health", "google"):
            raise
        raise InputError(
            f"Envoy's external processor needs {problem.name}, which is not installed: pip install 'vramledger[envoy]'",
            library=problem.name,
        ) from problem
    house = House(
        desk,
        doorkeeper=doorkeeper,
        counter=counter,
        observers=Observers(observers, clock_ns) if observers else None,
        limits=limits or Limits(),
        timeouts=timeouts or Timeouts(),
        counters=counters or Counters(),
        endpoints=endpoints,
        watch_streams=watch_streams,
        clock_ns=clock_ns,
    )
    return await server.start(house, listen, tls)
