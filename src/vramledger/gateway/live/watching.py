"""Asking an engine what it has and how it is, a question at a time beside the gateway's traffic, bounded in size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from vramledger.engines import find_metrics, find_sample_endpoints
from vramledger.errors import InputError, SourceError, VramledgerError
from vramledger.gateway.live.admitter import PolicyAdmitter
from vramledger.gateway.live.capacity import Capacity, Given, capacity_of, of_replicas
from vramledger.gateway.live.engine_state import EngineState, state_of
from vramledger.gateway.live.instance import Condition, Instance
from vramledger.gateway.memory_facts import measured_memory
from vramledger.gateway.snapshot import Sampled
from vramledger.gateway.upstream_asking import AskingFailed, EngineAnswer, UpstreamAsking
from vramledger.gateway.upstream_pool import UpstreamUnreachable
from vramledger.measurement import Measurement
from vramledger.observation import Sample
from vramledger.telemetry.exposition import parse_exposition
from vramledger.telemetry.metrics_reading import metrics_samples
from vramledger.telemetry.probes.engine import METRICS_PATHS, endpoint_samples, told_measurement, told_paths
from vramledger.telemetry.web import Answer

QUESTION_MS = 2_000
MOST_BYTES = 4 << 20
LARGE_BYTES = 1 << 19
LEAST_PAUSE_S = 0.05


class EngineWatch:
    """Asks one engine every `interval_s`, and at once when it is suspected of being gone. Raises nothing."""

    def __init__(
        self,
        instance: Instance,
        asking: UpstreamAsking,
        given: Given,
        admitter: PolicyAdmitter,
        *,
        interval_s: float,
        clock_ns: Callable[[], int],
    ) -> None:
        self.instance = instance
        self.problem = ""
        """Why it could not be opened, as last seen."""
        self._is_first = True
        self._asking = asking
        self._given = given
        self._admitter = admitter
        self._interval_s = interval_s
        self._clock_ns = clock_ns
        self._wake = asyncio.Event()
        self._replicas = 1
        self._metrics_path: str | None = None
        self.sampled: Sampled | None = None
        instance.ask_now = self._wake.set
        instance.engine = given.engine or ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
                await asyncio.sleep(LEAST_PAUSE_S)
            except TimeoutError:
                pass
            self._wake.clear()
            await self.look()

    async def look(self) -> None:
        """One round of questions: what it has, where that is not known, and how it is. Raises InputError in the first round, and in no other, for
        a policy that cannot go with it."""
        if not self.instance.is_open or self.instance.condition is Condition.DOWN:
            await self._open()
        self._is_first = False
        if self.instance.is_open:
            await self._read()

    async def _open(self) -> None:
        instance = self.instance
        where = instance.name
        try:
            told = await self._told(where)
            capacity = of_replicas(capacity_of(told, self._given, where=where), self._replicas)
        except AskingFailed as failed:
            instance.unanswered(is_unreachable=_is_unreachable(failed))
            self.problem = f"{where}: {failed}"
            return
        except VramledgerError as problem:
            self.problem = problem.message
            return
        if told is not None:
            instance.memory = measured_memory(told)
        if instance.is_open and capacity != instance.capacity:
            self._admitter.reopened()
        try:
            instance.open(capacity)
        except InputError as problem:
            if self._is_first:
                raise
            self.problem = f"{where}: {problem.message}"
            return
        self.problem = ""

    async def _told(self, where: str) -> Measurement | None:
        """What it says of itself; None where it answers with nothing known here. Raises AskingFailed where it does not answer at all."""
        answers: dict[str, EngineAnswer | AskingFailed] = {}
        for path in told_paths(self.instance.engine or None):
            try:
                answers[path] = await self._ask(path)
            except AskingFailed as failed:
                if _is_unreachable(failed):
                    raise
                answers[path] = failed
        if all(isinstance(answer, AskingFailed) for answer in answers.values()):
            raise AskingFailed("it answers none of the questions")

        def answered(url: str) -> Answer:
            answer = answers.get(url.removeprefix(where))
            if not isinstance(answer, EngineAnswer):
                raise SourceError(f"{url} cannot be asked: {answer or 'never asked'}", source=url)
            return Answer(url=url, status=answer.status, kind="", body=answer.body)

        try:
            return told_measurement(where, answered, engine=self.instance.engine or None)
        except SourceError as problem:
            self.problem = problem.message
            return None

    async def _read(self) -> None:
        instance = self.instance
        asked_ns = self._clock_ns()
        held, explained = instance.policy.held_blocks, instance.explained_blocks()
        try:
            samples = await self._samples()
        except AskingFailed as failed:
            instance.unanswered(is_unreachable=_is_unreachable(failed))
            return
        capacity = instance.capacity
        assert capacity is not None
        state = state_of(samples, capacity, asked_ns=asked_ns, answered_ns=self._clock_ns())
        if self.sampled is not None:
            self.sampled(instance.place, asked_ns, state.used_blocks, held)
        if instance.answered(state, held_blocks=held, explained_blocks=explained):
            self._admitter.cleared(instance, self._clock_ns())
            await self._open()
        elif capacity.engine in ("vllm", "sglang") and state.replicas > self._replicas:
            self._replicas = state.replicas
            await self._open()
        elif self._given.kv_unified is None and holds_more_than_all(state, capacity):
            self._given = replace(self._given, kv_unified=False)
            await self._open()

    async def _samples(self) -> list[Sample]:
        """Of the metrics, where there are any, and of the engine's other paths. Raises AskingFailed where nothing answers."""
        engine = self.instance.engine
        samples: list[Sample] = []
        problems: list[str] = []
        failed: AskingFailed | None = None
        answered = False
        for path in (self._metrics_path,) if self._metrics_path else METRICS_PATHS:
            try:
                answer = await self._ask(path)
            except AskingFailed as problem:
                failed = problem
                break
            answered = True
            if answer.status == 200:
                self._metrics_path = path
                samples += await _read_apart(answer.body, engine, path)
                break
        for endpoint in find_sample_endpoints(engine) if engine else ():
            try:
                answer = await self._ask(endpoint.path)
            except AskingFailed as problem:
                failed = problem
                continue
            answered = True
            if answer.status == 200:
                samples += endpoint_samples(endpoint, answer.body, 0.0, endpoint.path, problems)
        if failed is not None and not answered:
            raise failed
        return samples

    async def _ask(self, path: str) -> EngineAnswer:
        return await self._asking.ask(
            b"GET", path.encode("ascii"), within_ms=QUESTION_MS, most_bytes=MOST_BYTES
        )


def holds_more_than_all(state: EngineState, capacity: Capacity) -> bool:
    """Whether llama.cpp's slots hold more than they could, did they share the cells that each of them names: so they have as many each."""
    tokens = ((state.used_blocks or 0) + (state.kept_blocks or 0)) * capacity.layout.key_tokens
    return capacity.engine == "llamacpp" and capacity.max_running > 1 and tokens > capacity.max_model_len


async def _read_apart(body: bytes, engine: str, path: str) -> list[Sample]:
    """Answers of unusual length are read on another thread: at a dozen microseconds a line, everybody would wait."""

    def read() -> list[Sample]:
        exposition = parse_exposition(only(body, _names(engine)))
        return list(metrics_samples(exposition, engine, at_s=0.0, source=path))

    return await asyncio.to_thread(read) if len(body) > LARGE_BYTES else read()


def only(body: bytes, names: tuple[bytes, ...]) -> bytes:
    """Lines that may be of these metrics: of an engine's hundreds a few dozen are read, every second."""
    return b"\n".join(line for line in body.split(b"\n") if line.startswith(names))


def _names(engine: str) -> tuple[bytes, ...]:
    module = find_metrics(engine) if engine else None
    return () if module is None else tuple(metric.name.encode("ascii") for metric in module.METRICS)


def _is_unreachable(failed: AskingFailed) -> bool:
    return isinstance(failed.__cause__, UpstreamUnreachable)
