"""The engine that is asked, and what is known of it, while an experiment runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.errors import InputError
from vramledger.experiment.forecast import Forecaster, StageRun
from vramledger.experiment.instance import Instance, find_instance
from vramledger.experiment.launch import Launched
from vramledger.experiment.load import Server
from vramledger.experiment.result import LatencyModel, LoadFigures, PoolConfirmed, Snapshot
from vramledger.experiment.shapes import Source
from vramledger.experiment.warm_up import WarmUp, shapes_of, warm_up
from vramledger.experiment.watching import Watching
from vramledger.gateway.settings import upstream_from_url
from vramledger.release.experiment.guard import Guard
from vramledger.release.experiment.order import Order, launched_words
from vramledger.release.experiment.work import Told
from vramledger.simulation.settings import Slo
from vramledger.workload.request import Request, WorkloadHeader

USUAL_CONTEXT = 2048
"""Where the engine does not tell how long a request may be."""


class Live:
    """One for all steps. What a step finds out (pool, forecaster, what it measured) is put into it for those that follow."""

    def __init__(
        self, order: Order, watching: Watching, launched: Launched | None, instance: Instance
    ) -> None:
        self.order = order
        self.watching = watching
        self.launched = launched
        self.instance = instance
        self.started: tuple[Snapshot, ...] = ()
        """Memory before the engine, with its weights and when it was ready, of its start here."""
        self.warm: WarmUp | None = None
        self.planned: Plan | None = None
        self.pool: PoolConfirmed | None = None
        self.source: Source | None = None
        self.forecaster: Forecaster | None = None
        self.runs: list[StageRun] = []

    @property
    def context_len(self) -> int:
        return self.instance.target.context_len or USUAL_CONTEXT

    @property
    def pool_tokens(self) -> int | None:
        return None if self.pool is None else self.pool.engine_tokens or self.pool.planned_tokens

    @property
    def server(self) -> Server:
        return self.server_at(self.instance.target.url)

    def server_at(self, url: str) -> Server:
        """The same model at another address."""
        target = self.instance.target
        upstream = upstream_from_url(url)
        if self.order.key:
            upstream = replace(upstream, authorization=b"Bearer " + self.order.key.encode("ascii"))
        return Server(
            upstream=upstream,
            model=target.model,
            engine=target.engine,
            vocab_size=self.instance.vocab_size,
            context_len=target.context_len,
        )

    def guard(self) -> Guard:
        return Guard(self.instance.target.engine_url, self.launched)

    def warm_up(self, told: Told) -> WarmUp:
        """Ask every shape, and remember what that told."""
        server = self.server
        shapes = shapes_of(self.context_len, self.instance.at_once or 1, self.pool_tokens)
        check = (lambda: None) if self.launched is None else self.launched.process.check
        self.warm = warm_up(
            server.upstream, server.model, shapes, vocab_size=server.vocab_size, told=told, check=check
        )
        return self.warm

    def foretell(self, header: WorkloadHeader, requests: Sequence[Request], slo: Slo) -> LoadFigures | None:
        """From the stages until now; None where nothing can be foretold."""
        if self.forecaster is None:
            return None
        try:
            return self.forecaster.forecast(header, requests, slo)
        except InputError:
            return None

    def remember(self, run: StageRun) -> None:
        """What was measured, for the fits that follow; in the place of an earlier run of its name."""
        self.runs = [*(one for one in self.runs if one.name != run.name), run]

    def learn(self) -> LatencyModel | None:
        """Fit to all that is remembered; None where nothing is foretold."""
        return None if self.forecaster is None else self.forecaster.fit(self.runs)


@contextmanager
def live_engine(order: Order, watching: Watching, told: Told) -> Iterator[Live]:
    """Start the engine, or find it where it is. Raises EngineDied, InputError, SourceError."""
    if order.launch is None:
        assert order.target is not None
        yield _found(order, watching, None, order.target)
        return
    with Launched(
        order.launch, folder=order.out, model=order.model or "", engine=order.engine, token=order.key or None
    ) as launched:
        _, started = launched.start(watching, ready_s=order.ready_s, told=told)
        live = _found(order, watching, launched, launched.url)
        live.started = started
        try:
            yield live
        finally:
            # After a rolling update it is another instance that serves.
            if live.launched is not None and live.launched is not launched:
                live.launched.stop()


def _found(order: Order, watching: Watching, launched: Launched | None, url: str) -> Live:
    instance = find_instance(
        url,
        engine_url=order.engine_url,
        gateway_url=order.gateway_url,
        model=None if launched is not None else order.model,
        engine=order.engine,
        token=order.key or None,
        launched=launched_words(order),
        pid=None if launched is None else launched.process.pid,
    )
    target = instance.target
    if launched is None:
        if target.pid is not None:
            watching.process(target.pid)
        watching.engine(target.engine_url, engine=target.engine, token=order.key or None)
        if target.gateway_url is not None:
            watching.gateway(target.gateway_url)
    return Live(order, watching, launched, instance)
