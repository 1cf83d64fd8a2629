"""A gateway from its start until somebody tells it to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vramledger.errors import VramledgerError

if TYPE_CHECKING:
    from vramledger.gateway.service import GatewayService

Say = Callable[[str, str, dict[str, Any]], None]


async def run_until_told(service: GatewayService, say: Say) -> int:
    """Serves until SIGTERM, SIGINT or the admin port ends it: what runs may end, until the drain's bound or a second signal. 0 if all
    did, else what a shell gives the signal."""
    loop = asyncio.get_running_loop()
    at_once = asyncio.Event()
    code = 128 + signal.SIGTERM
    reloads: set[asyncio.Task[None]] = set()

    def told(number: int) -> None:
        nonlocal code
        code = 128 + number
        if service.stopping.is_set():
            at_once.set()
        service.stopping.set()

    def reload() -> None:
        task = loop.create_task(_reload(service))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        await service.stopping.wait()
        in_flight = service.in_flight
        say(
            "draining",
            f"no more is taken in; {in_flight} requests have {service.config.drain_s:g} s to end, and a second signal ends "
            "them now",
            {"in_flight": in_flight},
        )
        all_ended = await _drained(service, at_once)
        cut = service.in_flight
        say(
            "stopped",
            "everything ended by itself" if all_ended else f"{cut} requests were cut off",
            {"cut_off": cut},
        )
        return 0 if all_ended else code
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
        await service.close()


async def _drained(service: GatewayService, at_once: asyncio.Event) -> bool:
    draining = asyncio.ensure_future(service.drain())
    hurried = asyncio.ensure_future(at_once.wait())
    await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if draining.done():
        return draining.result()
    draining.cancel()
    with suppress(asyncio.CancelledError):
        await draining
    return False


async def _reload(service: GatewayService) -> None:
    with suppress(VramledgerError):  # it was told
        await service.reload()
