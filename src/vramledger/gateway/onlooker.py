"""An engine, a gateway before it and this machine looked at together, from outside and again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from vramledger.errors import InputError, SourceError, VramledgerError
from vramledger.gateway.live.capacity import Capacity, Given, capacity_of, of_replicas
from vramledger.gateway.live.engine_state import EngineState, state_of
from vramledger.gateway.recent_requests import RecentRequest
from vramledger.gateway.snapshot import GatewayState
from vramledger.observation import Sample
from vramledger.telemetry.probes.engine import MetricsProbe, engine_measurement
from vramledger.telemetry.probes.gateway import gateway_answer, gateway_requests
from vramledger.telemetry.probes.host import HostProbe
from vramledger.telemetry.probes.nvml import Nvml
from vramledger.telemetry.series import Source

LOOK_S = 5.0
MOST_REQUESTS = 256
MOST_SAMPLES = 2_000


class EngineMoment(Struct, frozen=True, kw_only=True):
    """What an engine says now, in blocks of its pool; None is what it does not say. `totals` are its counters since its start, by the names
    of `engines.metrics_table`. `block_size` is tokens."""

    url: str
    engine: str = ""
    version: str | None = None
    model: str | None = None
    block_size: int | None = None
    total_blocks: int | None = None
    used_blocks: int | None = None
    cached_blocks: int | None = None
    """Free ones whose content can still be found."""
    running_requests: int | None = None
    waiting_requests: int | None = None
    totals: Mapping[str, float] = {}
    notes: tuple[str, ...] = ()

    @property
    def free_blocks(self) -> int | None:
        """Not held by requests: those with cached content among them."""
        if self.total_blocks is None or self.used_blocks is None:
            return None
        return max(0, self.total_blocks - self.used_blocks)


class GatewayMoment(Struct, frozen=True, kw_only=True):
    """What a gateway says at its admin address: its books, and its counters since its start."""

    url: str
    state: GatewayState
    counters: Mapping[str, int] = {}


class Moment(Struct, frozen=True, kw_only=True):
    """One look. `engine` and `gateway` are None where none is looked at or it does not answer, which `problems` say by the address.

    `requests` are those that the gateway took in or that changed since the look before. `samples` are of devices and processes.
    """

    at_s: float
    engine: EngineMoment | None = None
    gateway: GatewayMoment | None = None
    requests: tuple[RecentRequest, ...] = ()
    samples: tuple[Sample, ...] = ()
    problems: Mapping[str, str] = {}


class Onlooker(AbstractContextManager["Onlooker"]):
    """Looks when asked. `engine` names which engine it is where the server does not say; tokens go with the questions to the address that
    they are for. Raises SourceError where there is no NVML or no /proc and that was asked for."""

    def __init__(
        self,
        *,
        url: str | None = None,
        gateway_url: str | None = None,
        pids: Sequence[int] = (),
        nvml: bool = False,
        engine: str | None = None,
        token: str | None = None,
        gateway_token: str | None = None,
    ) -> None:
        self._url = url
        self._gateway_url = gateway_url
        self._engine = engine
        self._token = token
        self._gateway_token = gateway_token
        self._probe = self._new_probe()
        self._told: EngineMoment | None = None
        self._capacity: Capacity | None = None
        self._totals: Mapping[str, float] = {}
        self._seen: dict[int, RecentRequest] = {}
        self.answered = False
        """Whether an engine, a gateway or a device ever did."""
        with ExitStack() as stack:
            self._machine: list[Source] = [HostProbe(pid) for pid in pids]
            if nvml:
                self._machine.append(stack.enter_context(Nvml()))
            self._stack = stack.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def look(self, at_s: float) -> Moment:
        """What all say now. Raises nothing for what does not answer."""
        problems: dict[str, str] = {}
        engine = self._look_at_the_engine(at_s, problems) if self._url is not None else None
        gateway: GatewayMoment | None = None
        requests: tuple[RecentRequest, ...] = ()
        if self._gateway_url is not None:
            gateway, requests = self._look_at_the_gateway(self._gateway_url, problems)
        samples: list[Sample] = []
        for source in self._machine:
            try:
                samples += source.read(at_s)
            except SourceError as problem:
                problems[source.name] = problem.message
        if engine is not None or gateway is not None or samples:
            self.answered = True
        return Moment(
            at_s=at_s,
            engine=engine,
            gateway=gateway,
            requests=requests,
            samples=tuple(samples[:MOST_SAMPLES]),
            problems=problems,
        )

    def _look_at_the_engine(self, at_s: float, problems: dict[str, str]) -> EngineMoment | None:
        assert self._url is not None and self._probe is not None
        try:
            if self._told is None:
                self._told = self._tell(self._url)
            samples = self._probe.read(at_s)
        except VramledgerError as problem:
            problems[self._url] = problem.message
            # What comes back may be another engine, or the same with another pool.
            self._told = self._capacity = None
            self._totals = {}
            self._probe = self._new_probe()
            return None
        told = self._told
        state = self._state(samples)
        if state is None:
            return told
        if any(value < self._totals.get(name, value) for name, value in state.totals.items()):
            self._told = self._tell_again(self._url) or told
        self._totals = state.totals
        return msgspec.structs.replace(
            told,
            used_blocks=state.used_blocks,
            cached_blocks=state.kept_blocks,
            running_requests=state.running_count,
            waiting_requests=state.waiting_count,
            totals=state.totals,
        )

    def _state(self, samples: Sequence[Sample]) -> EngineState | None:
        capacity = self._capacity
        if capacity is None:
            return None
        state = state_of(samples, capacity, asked_ns=0, answered_ns=0)
        if state.replicas > capacity.replicas and capacity.replicas == 1:
            self._capacity = capacity = of_replicas(capacity, state.replicas)
            state = state_of(samples, capacity, asked_ns=0, answered_ns=0)
            if self._told is not None:
                self._told = msgspec.structs.replace(
                    self._told, total_blocks=capacity.layout.usable_blocks, notes=capacity.notes
                )
        return state

    def _tell(self, url: str) -> EngineMoment:
        """What it says of itself once. Raises VramledgerError where it does not answer as an engine known here does."""
        measurement = engine_measurement(url, engine=self._engine, token=self._token, limit_s=LOOK_S)
        base = EngineMoment(
            url=url,
            engine=measurement.engine or self._engine or "",
            version=measurement.engine_version,
            model=measurement.model,
        )
        try:
            self._capacity = capacity = capacity_of(measurement, Given(engine=self._engine), where=url)
        except InputError as problem:
            self._capacity = None
            return msgspec.structs.replace(base, notes=(problem.message,))
        return msgspec.structs.replace(
            base,
            block_size=capacity.layout.key_tokens,
            total_blocks=capacity.layout.usable_blocks,
            notes=capacity.notes,
        )

    def _tell_again(self, url: str) -> EngineMoment | None:
        try:
            return self._tell(url)
        except VramledgerError:
            return None

    def _new_probe(self) -> MetricsProbe | None:
        if self._url is None:
            return None
        return MetricsProbe(self._url, engine=self._engine, token=self._token, limit_s=LOOK_S)

    def _look_at_the_gateway(
        self, url: str, problems: dict[str, str]
    ) -> tuple[GatewayMoment | None, tuple[RecentRequest, ...]]:
        try:
            answer = gateway_answer(url, token=self._gateway_token, limit_s=LOOK_S)
            moment = GatewayMoment(url=url, state=_state_of(answer, url), counters=_counters(answer))
        except VramledgerError as problem:
            problems[url] = problem.message
            self._seen = {}
            return None, ()
        try:
            found = gateway_requests(url, token=self._gateway_token, limit_s=LOOK_S)
            return moment, self._changed(
                msgspec.convert(found[: 2 * MOST_REQUESTS], tuple[RecentRequest, ...])
            )
        except SourceError as problem:  # one from before it told of requests
            problems[f"{url}/requests"] = problem.message
        except msgspec.ValidationError as problem:
            problems[f"{url}/requests"] = (
                f"{url} tells of requests in a way that is not known here: {problem}"
            )
        return moment, ()

    def _changed(self, found: Sequence[RecentRequest]) -> tuple[RecentRequest, ...]:
        """Oldest first. Times that only tell how old something is do not count."""
        before, self._seen = self._seen, {request.number: request for request in found}
        return tuple(
            request
            for request in sorted(found, key=lambda request: request.number)
            if _lasting(request) != _lasting(before.get(request.number))
        )


def _lasting(request: RecentRequest | None) -> object:
    if request is None:
        return None
    return msgspec.structs.replace(request, came_ms=0, queue_ms=None)


def _state_of(answer: Mapping[str, Any], url: str) -> GatewayState:
    try:
        return msgspec.convert(answer["gateway"], GatewayState)
    except msgspec.ValidationError as problem:
        raise SourceError(
            f"{url} tells of its state in a way that is not known here: {problem}", source=url
        ) from None


def _counters(answer: Mapping[str, Any]) -> dict[str, int]:
    found = answer.get("counters")
    listed = found.items() if isinstance(found, dict) else ()
    return {
        str(name)[:80]: value
        for name, value in listed
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**60
    }
