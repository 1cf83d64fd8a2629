"""Listens for Envoy: gRPC with its limits, health as other endpoint pickers tell it, draining and closing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from vramledger.errors import InputError
from vramledger.gateway.envoy import wire
from vramledger.gateway.envoy.answer import WatchedAnswer
from vramledger.gateway.envoy.dialogue import Dialogue
from vramledger.gateway.envoy.ext_proc import ProcessorTls
from vramledger.gateway.envoy.house import House
from vramledger.gateway.envoy.messages import Said, Unsuited
from vramledger.gateway.settings import Limits, Timeouts

LOG = logging.getLogger(__name__)
SWEEP_S = 0.25
FAREWELL_S = 1.0
"""How long those that were refused have to be told so."""
HEALTH_NAMES = ("", "liveness", "readiness", wire.SERVICE)
READY_NAMES = ("", "readiness", wire.SERVICE)
Context = grpc.aio.ServicerContext[Said, bytes]


class _Channel:
    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(self) -> Said | None:
        said = await self._context.read()
        return said if isinstance(said, Said) else None

    async def write(self, data: bytes) -> None:
        await self._context.write(data)


class ExtProcServer:
    """A running processor. All of it lives in the event loop that started it."""

    def __init__(self, house: House, server: grpc.aio.Server, checks: health.aio.HealthServicer) -> None:
        self._house = house
        self._server = server
        self._checks = checks
        self._open: dict[Dialogue, asyncio.Task[None]] = {}
        self._faults: set[str] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self.port = 0
        """Where it listens, once started; 0 for a socket in the file system."""

    @property
    def open_streams(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Of request bodies that are not let in yet."""
        return self._house.held_bytes

    def reads_as(self, engine: str) -> None:
        """Whose reading of requests goes for what they may generate, as `vramledger.engines` names it; "" where nobody knows."""
        self._house.engine = engine

    def adopt(self, limits: Limits, timeouts: Timeouts) -> None:
        """Other bounds from now on; how long a message may be stays as it was. The desk's are the desk's."""
        self._house.limits, self._house.timeouts = limits, timeouts

    async def process(self, _: object, context: Context) -> None:
        """One stream. Returning ends it well, and Envoy goes on without asking again."""
        task = asyncio.current_task()
        assert task is not None
        dialogue = Dialogue(self._house, _Channel(context))
        self._open[dialogue] = task
        try:
            await dialogue.run()
        except Unsuited as unsuited:
            self._complain(str(unsuited))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(unsuited))
        except asyncio.CancelledError:
            if not (self._house.closing and dialogue.is_let_in):
                raise
            task.uncancel()
        finally:
            try:
                await dialogue.close()
            finally:
                del self._open[dialogue]

    def _complain(self, fault: str) -> None:
        if fault not in self._faults:
            self._faults.add(fault)
            LOG.error("Envoy's ext_proc filter is not configured for admission: %s", fault)

    async def start(self) -> None:
        for name in HEALTH_NAMES:
            await self._checks.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def drain(self, within_s: float) -> bool:
        """Refuses new requests and those that wait, and watches the others to their ends. True if all had one."""
        for name in READY_NAMES:
            await self._checks.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._house.desk.drain()
        return await self._until(lambda: not self._open, within_s)

    async def _until(self, condition: Callable[[], bool], within_s: float) -> bool:
        deadline = asyncio.get_running_loop().time() + within_s
        while not condition() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return condition()

    async def close(self) -> None:
        """Ends everything now. Answers that were let in go on in Envoy, unwatched."""
        await self.drain(0)
        await self._until(lambda: all(dialogue.is_let_in for dialogue in self._open), FAREWELL_S)
        self._house.closing = True
        for task in list(self._open.values()):
            task.cancel()
        while self._open:
            await asyncio.sleep(0)
        await self._server.stop(1)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def _sweep(self) -> None:
        """Tells the policy how far the answers are."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for answer in [dialogue.answer for dialogue in self._open if dialogue.answer is not None]:
                if answer.output_events > answer.told_events:
                    self._tell(answer)
            self._house.desk.ask_again()

    def _tell(self, answer: WatchedAnswer) -> None:
        events = answer.told_events = answer.output_events
        self._house.desk.progress(answer.ticket, events)
        if self._house.observers is not None and answer.ticket.record is not None:
            self._house.observers.progressed(answer.ticket.record, events, self._house.clock_ns())


async def start(house: House, listen: str, tls: ProcessorTls | None) -> ExtProcServer:
    """Listens. An InputError names an address that cannot be had."""
    server = grpc.aio.server(options=_options(house.limits))
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    processor = ExtProcServer(house, server, checks)
    method: grpc.RpcMethodHandler[Said, bytes] = grpc.stream_stream_rpc_method_handler(
        processor.process, request_deserializer=wire.read
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(wire.SERVICE, {"Process": method}),)
    )
    try:
        if tls is None:
            processor.port = server.add_insecure_port(listen)
        else:
            credentials = grpc.ssl_server_credentials(
                [(tls.key, tls.certificate)],
                root_certificates=tls.client_roots,
                require_client_auth=tls.client_roots is not None,
            )
            processor.port = server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise InputError(
            f"the external processor cannot listen on {listen}: {error}", listen=listen
        ) from error
    if listen.startswith("unix:"):
        processor.port = 0
    await processor.start()
    return processor


def _options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.body_bytes + (1 << 20)),
        ("grpc.max_metadata_size", limits.head_bytes),
        ("grpc.so_reuseport", 0),  # or a second processor would take half of the streams in silence
        # An Envoy whose host died is noticed, and its requests given back, within half a minute.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Envoy asks after its connections as often; that is no offence.
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]
