"""A gateway in a process of its own that lets in and ends as fast as it can, beside an engine that counts what all of them hold.

    python hammer.py SOCKET COUNTS SLOT BLOCKS [SECONDS]

COUNTS is a file of one number a slot: the engine. Ends with one line: what it let in, and how often the engine had too much.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vramledger.gateway.shared.address import StoreAddress
from vramledger.gateway.shared.grant import Standing
from vramledger.gateway.shared.keeper import SharedBudgets
from vramledger.gateway.shared.settings import SharingSettings
from vramledger.gateway.shared.store import Store

QUICK = SharingSettings(lease_ms=600, heartbeat_ms=20, hungry_ms=5, timeout_ms=120)


class Engine:
    """Blocks held by each gateway, looked at and changed by one at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def counts(self) -> Iterator[list[int]]:
        with self._path.open("r+") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            counts = json.loads(opened.read())
            yield counts
            opened.seek(0)
            opened.truncate()
            opened.write(json.dumps(counts))
            opened.flush()


async def hammer(socket: str, path: Path, slot: int, blocks: int, seconds: float) -> None:
    engine, chance = Engine(path), random.Random(slot)
    budgets = SharedBudgets(Store(StoreAddress(path=socket), timeout_ms=QUICK.timeout_ms), QUICK)
    grant = budgets.budget("engine")
    grant.offer(blocks, 0)
    budgets.start()
    running: list[int] = []
    admitted = too_much = 0
    end = time.monotonic() + seconds
    print("ready", flush=True)
    while time.monotonic() < end:
        size = chance.randint(1, blocks // 3)
        grant.want(sum(running) + size, 0, held_blocks=sum(running), held_places=0, next_blocks=size)
        if sum(running) + size <= grant.blocks:
            grant.want(sum(running) + size, 0, held_blocks=sum(running) + size, held_places=0)
            with engine.counts() as counts:
                # Half a lease may have passed since it decided, on a machine with nothing to spare: it looks again before it sends.
                if grant.standing is Standing.GRANTED:
                    running.append(size)
                    counts[slot] += size
                    too_much += sum(counts) > blocks
                    admitted += 1
        if running and chance.random() < 0.5:
            ended = running.pop(chance.randrange(len(running)))
            with engine.counts() as counts:
                counts[slot] -= ended
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.004]))
    with engine.counts() as counts:
        counts[slot] = 0
    grant.want(0, 0, held_blocks=0, held_places=0)
    await budgets.leave()
    print(json.dumps({"admitted": admitted, "too_much": too_much, "lapses": grant.lapses}), flush=True)


if __name__ == "__main__":
    asyncio.run(
        hammer(
            sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]),
            float(sys.argv[5]) if len(sys.argv) > 5 else 3600,
        )
    )  # fmt: skip
