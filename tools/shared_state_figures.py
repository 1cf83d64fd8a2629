"""What sharing a budget costs: a decision, the store, and how long a grant takes. With a real Valkey server.

    PYTHONPATH=tests python -m tools.shared_state_figures [--gateways 1,4,16] [--seconds 4]

The lines of docs/shared-state.md. Everything runs on one machine: gateways in one event loop, the server beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
import timeit
from pathlib import Path

from gateway.shared.valkey_server import ValkeyServer
from vramledger.gateway.shared.budget import Budget, WholeBudget
from vramledger.gateway.shared.grant import Grant
from vramledger.gateway.shared.keeper import SharedBudgets
from vramledger.gateway.shared.settings import SharingSettings
from vramledger.gateway.shared.store import Store
from vramledger.gateway.shared.terms import Answer

BLOCKS, PLACES = 20_000, 256


def decision_ns(budget: Budget) -> float:
    """What a decision and a release ask of the budget: both figures read and told, the best of five."""
    budget.offer(BLOCKS, PLACES)

    def once() -> None:
        assert budget.blocks >= 0 <= budget.places
        budget.want(310, 4, held_blocks=300, held_places=3, next_blocks=0, next_places=0)

    return min(timeit.repeat(once, number=20_000, repeat=5)) / 20_000 * 1e9


def granted() -> Grant:
    grant = Grant(SharingSettings(lease_ms=3_600_000))
    grant.offer(BLOCKS, PLACES)
    grant.want(310, 4, held_blocks=300, held_places=3)
    grant.ask()
    grant.answered(
        Answer(400, 6, 400, 6, 0, 0, BLOCKS, PLACES, 1, 0, ""), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    )
    return grant


def calls(server: ValkeyServer) -> tuple[int, float]:
    """How often the script ran, and its microseconds a call."""
    found = re.search(r"cmdstat_evalsha:calls=(\d+),usec=(\d+)", server.command("INFO", "commandstats"))
    return (int(found[1]), int(found[2]) / int(found[1])) if found else (0, 0.0)


async def load(grant: Grant, size: int, lasts_s: float, until: float, waits: list[float]) -> None:
    """Requests one after the other at its gateway, more of them wanted than there is room for: each waits for its blocks."""
    running: list[tuple[float, int]] = []
    began = time.monotonic()
    while (now := time.monotonic()) < until:
        running = [row for row in running if row[0] > now]
        held = sum(blocks for _, blocks in running)
        grant.want(
            held + 8 * size,
            len(running) + 8,
            held_blocks=held,
            held_places=len(running),
            next_blocks=size,
            next_places=1,
        )
        if held + size <= grant.blocks and len(running) < grant.places:
            running.append((now + lasts_s, size))
            waits.append(now - began)
            began = time.monotonic()
        await asyncio.sleep(0.002)


async def under_load(server: ValkeyServer, count: int, seconds: float) -> str:
    server.command("FLUSHALL")
    settings = SharingSettings(lease_ms=4000, heartbeat_ms=500, timeout_ms=500)
    gateways = [SharedBudgets(Store(server.address, timeout_ms=500), settings) for _ in range(count)]
    grants = [gateway.budget("engine") for gateway in gateways]
    for gateway, grant in zip(gateways, grants, strict=True):
        grant.offer(BLOCKS, PLACES)
        gateway.start()
    await asyncio.sleep(4.5)
    server.command("CONFIG", "RESETSTAT")
    await asyncio.sleep(seconds)
    idle, idle_us = calls(server)
    first: list[float] = []
    for grant in grants:
        began = time.perf_counter()
        grant.want(BLOCKS // count // 2, 4, held_blocks=0, held_places=0)
        while grant.blocks < BLOCKS // count // 2:
            await asyncio.sleep(0)
        first.append(time.perf_counter() - began)
    server.command("CONFIG", "RESETSTAT")
    waits: list[float] = []
    end = time.monotonic() + seconds
    await asyncio.gather(*(load(grant, 97, 0.3, end, waits) for grant in grants))
    busy, busy_us = calls(server)
    line = (
        f"| {count} | {idle / seconds:.0f} | {busy / seconds:.0f} | {busy_us:.0f} µs | "
        f"{busy * busy_us / seconds / 1e4:.1f} % | {statistics.median(first) * 1e3:.1f} ms | {len(waits) / seconds:,.0f} |"
    )
    for gateway, grant in zip(gateways, grants, strict=True):
        grant.want(0, 0, held_blocks=0, held_places=0)
        await gateway.leave()
    assert not sum(gateway.counters.unreachable + gateway.counters.errors for gateway in gateways), idle_us
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gateways", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    print(
        f"A decision's and a release's part: {decision_ns(granted()):.0f} ns with a grant, {decision_ns(WholeBudget()):.0f} ns alone.\n"
    )
    print(
        "| gateways | calls a second, idle | under load | the script | of the server's core | first grant after idleness, p50 | requests a second |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="vramledger-") as folder:
        server = ValkeyServer(Path(folder))
        server.start()
        try:
            for count in arguments.gateways.split(","):
                print(asyncio.run(under_load(server, int(count), arguments.seconds)), flush=True)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
