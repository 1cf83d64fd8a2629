"""Nobody decides: every request is let in at once, and engines are not asked how they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vramledger.gateway.admitter import Admitter, Decision, Ending, RequestFacts, Verdict
from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.policy_section import Deciding
from vramledger.gateway.shared.keeper import SharingCounters
from vramledger.gateway.snapshot import InstanceState, Sampled


class AdmitAll:
    """An `Admitter` that sends requests to engines in turn."""

    def __init__(self, engines: int) -> None:
        self._decisions = [
            Decision(verdict=Verdict.ADMIT, rule="open", instance=place) for place in range(engines)
        ]

    def decide(self, facts: RequestFacts, now_ns: int) -> Decision:
        return self._decisions[facts.number % len(self._decisions)]

    def reconsider(self, now_ns: int) -> Sequence[tuple[int, Decision]]:
        return ()

    def progress(self, number: int, output_tokens: int, now_ns: int) -> None: ...

    def release(self, number: int, ending: Ending, now_ns: int) -> None: ...


class OpenHouse:
    """`service.Engines` of which nothing is known but their addresses and what the configuration calls them."""

    def __init__(self, config: GatewayConfig) -> None:
        self.admitter: Admitter = AdmitAll(len(config.upstream))
        self.sharing: SharingCounters | None = None
        self._instances = tuple(InstanceState(name=one.label, engine=one.engine) for one in config.upstream)

    async def start(self, sampled: Sampled, ask_again: Callable[[], None]) -> None: ...

    async def close(self) -> None: ...

    def instances(self) -> Sequence[InstanceState]:
        return self._instances

    def version(self, place: int) -> str | None:
        return None

    def context_tokens(self, place: int) -> int | None:
        return None

    def terms(self, place: int) -> dict[str, Any]:
        return {}

    def adopt(self, config: GatewayConfig, weights: dict[int, int]) -> tuple[str, ...]:
        return ("policy.decided_by",) if config.policy.decided_by is not Deciding.NOBODY else ()

    def state(self) -> dict[str, Any]:
        return {"decided_by": "nobody"}
