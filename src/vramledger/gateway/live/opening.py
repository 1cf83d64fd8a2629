"""From addresses of engines to an admitter that watches them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from vramledger.admission.defaults import Goal, default_settings
from vramledger.admission.settings import PolicySettings
from vramledger.gateway.live.admitter import PolicyAdmitter
from vramledger.gateway.live.capacity import Capacity, Given
from vramledger.gateway.live.instance import Instance
from vramledger.gateway.live.watching import EngineWatch
from vramledger.gateway.settings import Upstream
from vramledger.gateway.shared.budget import Budget
from vramledger.gateway.upstream_asking import UpstreamAsking, close_all

INTERVAL_S = 1.0


class LiveAdmitter(PolicyAdmitter):
    """A `PolicyAdmitter` whose engines are asked how they are, from `start` to `close`."""

    def __init__(
        self, instances: Sequence[Instance], clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        super().__init__(instances)
        self.clock_ns = clock_ns
        self.watches: list[EngineWatch] = []
        self.askings: list[UpstreamAsking] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def problems(self) -> list[str]:
        """Why engines that are not open yet could not be opened, as last seen."""
        return [watch.problem for watch in self.watches if watch.problem]

    @property
    def notes(self) -> list[str]:
        """What was doubted of what the engines have."""
        return [
            f"{one.name}: {note}"
            for one in self.instances
            if one.capacity is not None
            for note in one.capacity.notes
        ]

    def start(self) -> None:
        """Asks on in the running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(watch.run()) for watch in self.watches]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await close_all(self.askings)


async def open_instances(
    upstreams: Sequence[Upstream],
    goal: Goal = Goal.THROUGHPUT,
    given: Given | Sequence[Given] | None = None,
    *,
    names: Sequence[str] = (),
    budgets: Sequence[Budget] | None = None,
    changes: Mapping[str, Any] | None = None,
    interval_s: float = INTERVAL_S,
    tls: ssl.SSLContext | None = None,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> LiveAdmitter:
    """Asks each engine once, and returns whether or not it answered: one that does not is opened when it does, and until then takes nothing.

    `given` is what is known beforehand, of all engines or of each; `changes` are fields of `admission.settings.PolicySettings` that go before
    what the engine and the goal would choose (queue bounds, weights). `budgets`, one of each, are what may be used of engines that other gateways use too. `names` are the instances' in states and messages,
    by default their addresses. What `clock_ns` tells must be what the gateway is given.
    """
    each = list(given) if isinstance(given, Sequence) else [given or Given()] * len(upstreams)
    assert len(each) == len(upstreams)

    def settings_for(capacity: Capacity) -> PolicySettings:
        return settings_of(capacity, goal, changes or {})

    instances = [
        Instance(
            names[place] if names else address(upstream),
            place,
            settings_for,
            budgets[place] if budgets is not None else None,
        )
        for place, upstream in enumerate(upstreams)
    ]
    admitter = LiveAdmitter(instances, clock_ns)
    for instance, upstream, known in zip(instances, upstreams, each, strict=True):
        asking = UpstreamAsking(upstream, tls=tls)
        admitter.askings.append(asking)
        admitter.watches.append(
            EngineWatch(instance, asking, known, admitter, interval_s=interval_s, clock_ns=clock_ns)
        )
    try:
        await asyncio.gather(*(watch.look() for watch in admitter.watches))
    except BaseException:
        await admitter.close()
        raise
    return admitter


def settings_of(capacity: Capacity, goal: Goal, changes: Mapping[str, Any]) -> PolicySettings:
    """The policy's settings for an instance. Raises InputError for what contradicts itself."""
    settings = default_settings(
        goal,
        capacity.when_full,
        layout=capacity.layout,
        max_model_len=capacity.max_model_len,
        max_running=capacity.max_running,
        step_tokens=capacity.step_tokens,
        lag_steps=capacity.lag_steps,
    )
    return replace(settings, **changes) if changes else settings


def address(upstream: Upstream) -> str:
    """As a person writes it."""
    scheme = "https" if upstream.tls else "http"
    return f"{scheme}://{upstream.authority.decode('ascii')}"
