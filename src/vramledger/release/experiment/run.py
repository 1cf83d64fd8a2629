"""The experiment: its steps one after the other, each kept as it ends, the rest gone on with another time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.documents.plan_reader import plan_of
from vramledger.errors import InputError, VramledgerError
from vramledger.experiment.folder import SERIES
from vramledger.experiment.forecast import Forecaster
from vramledger.experiment.forecast_settings import forecast_settings
from vramledger.experiment.journal import open_journal, refuse_changed
from vramledger.experiment.plan import Step
from vramledger.experiment.result import Experiment, Failure, Target
from vramledger.experiment.shapes import Source, checked_source, read_source
from vramledger.experiment.watching import Watching
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.reader import read_manifest
from vramledger.measurement import Measurement
from vramledger.models.sources.bounded_file import read_whole, shown
from vramledger.release.experiment.apart import disturbed, prefix
from vramledger.release.experiment.beginning import confirmed, load, pool_of, told_of, warmed
from vramledger.release.experiment.climbing import mixed, short
from vramledger.release.experiment.concluding import (
    conclude,
    write_manifest_of,
    write_measurement,
)
from vramledger.release.experiment.failing import failure_in
from vramledger.release.experiment.guard import EngineEnded
from vramledger.release.experiment.live import Live, live_engine
from vramledger.release.experiment.order import (
    Order,
    checked_order,
    launched_words,
    need_libraries,
)
from vramledger.release.experiment.restarting import restart
from vramledger.release.experiment.sending import runs_again
from vramledger.release.experiment.steady import steady
from vramledger.release.experiment.work import Kept, Skipped, Told, Work
from vramledger.telemetry.engine_process import EngineDied
from vramledger.telemetry.probes.engine import engine_measurement

MANIFEST_LIMIT_BYTES = 64 * 2**20
StepOf = Callable[[Work, Live], None]
STEPS: Mapping[Step, StepOf] = {
    Step.LOAD: load,
    Step.WARM_UP: warmed,
    Step.POOL: confirmed,
    Step.SHORT: short,
    Step.MIXED: mixed,
    Step.PREFIX: prefix,
    Step.DISTURBED: disturbed,
    Step.STEADY: steady,
    Step.RESTART: restart,
}
"""Those that need the engine."""


def run_experiment(order: Order, *, told: Told = lambda _: None, kept: Kept = lambda *_: None) -> Experiment:
    """Do what of it is not done yet, and return all of it. `told` hears what is being done, `kept` what is kept of it.

    Raises InputError and its kin for what cannot be begun or was begun otherwise, SourceError where nobody answers, OutputError where nothing can be
    kept, EngineDied where an engine that served before does not start again. What ends it in the middle (a signal) leaves a folder that is gone on with.
    """
    need_libraries()
    order = checked_order(order)
    manifest = None if order.manifest is None else _manifest(order)
    # Read before anything is started: a name that is mistyped is not to cost an engine's start.
    source = None if order.plan.workload is None else read_source(order.plan.workload)
    checked_source(order.plan, source)
    with open_journal(order.out, fresh=order.fresh) as journal:
        begun = Experiment(
            began_s=0.0,
            made_by=order.made_by,
            plan=order.plan,
            target=_target(order),
            manifest_digest=None if manifest is None else manifest.digest,
        )
        work = Work(order, journal, begun, told=told, kept=kept)
        if not work.is_continued:
            work.change(began_s=work.clock())
        for step in STEPS:
            if step in work.plan.skip and not work.is_over(step):
                work.end(step, "skipped", "the plan says so")
        if not all(work.is_over(step) for step in STEPS):
            _with_engine(work, manifest, source)
        if not work.is_over(Step.POINT):
            _concluded(work, manifest)
        return work.now


def _with_engine(work: Work, manifest: ManifestDocument | None, source: Source | None) -> None:
    order = work.order
    with Watching(order.out / SERIES, interval_s=work.plan.interval_s) as watching:
        try:
            with live_engine(order, watching, work.told) as live:
                live.source = source
                _steps(work, live, None if manifest is None else plan_of(manifest.plan))
                write_measurement(work, _said_last(live), () if live.launched is None else live.launched.logs)
        except EngineDied as problem:
            if work.is_over(Step.LOAD):
                raise
            _failed(work, Step.LOAD, "", problem.message, str(problem.facts.get("log", "")))


def _steps(work: Work, live: Live, planned: Plan | None) -> None:
    now = replace(work.now, target=live.instance.target)
    if work.is_continued:
        refuse_changed(work.now, now, work.journal.folder)
    work.change(target=live.instance.target)
    for note in live.instance.notes:
        work.note(note)
    _prepare(work, live, planned)
    for step, of_step in STEPS.items():
        if work.is_over(step):
            continue
        since_s = live.started[0].at_s if step is Step.LOAD and live.started else None
        work.begin(step, since_s=since_s)
        work.told(step.value)
        try:
            of_step(work, live)
        except Skipped as reason:
            work.end(step, "skipped", str(reason))
        except InputError as problem:
            work.end(step, "skipped", problem.message)
        except EngineEnded as problem:
            log = "" if live.launched is None or not live.launched.logs else str(live.launched.logs[-1])
            _failed(work, step, problem.stage, problem.words, log)
            return
        except EngineDied as problem:
            _failed(work, step, "", problem.message, str(problem.facts.get("log", "")))
            return
        else:
            work.end(step, "done")
    for note in live.watching.notes:
        work.note(note)


def _prepare(work: Work, live: Live, planned: Plan | None) -> None:
    """What every step may use; of an experiment that goes on, also what its earlier stages taught."""
    live.planned = planned
    live.pool = pool_of(live)
    target = live.instance.target
    try:
        found = forecast_settings(
            planned, told_of(live), live.pool, engine=target.engine, context_len=target.context_len
        )
    except VramledgerError as problem:
        work.note(f"nothing is foretold: {problem.message}")
    else:
        for note in found.notes:
            work.note(f"forecast: {note}")
        live.forecaster = Forecaster(found.settings, model=work.now.latency_model)
    if work.is_continued:
        work.told("going on from what was measured")
        runs_again(work, live, [stage for stage in work.now.stages if stage.is_whole])
        if live.launched is not None and work.is_over(Step.WARM_UP):
            live.warm_up(work.told)


def _failed(work: Work, step: Step, stage: str, ending: str, log: str) -> None:
    """The engine's end is a result: what was measured before it counts, and the steps after it are not to be had."""
    failure = failure_in(
        step, stage, work.clock(), log=log, ending=ending, engine=work.now.target.engine
    ) or Failure(step=step, at_s=work.clock(), stage=stage, words=ending)
    work.change(failure=failure)
    work.end(step, "failed", ending)
    for later in STEPS:
        if not work.is_over(later):
            work.end(later, "skipped", f"the engine ended in {stage or step.value}")


def _concluded(work: Work, manifest: ManifestDocument | None) -> None:
    work.begin(Step.POINT)
    try:
        conclude(work)
    except Skipped as reason:
        work.end(Step.POINT, "skipped", str(reason))
    else:
        work.end(Step.POINT, "done")
    if manifest is not None:
        write_manifest_of(work, manifest)


def _said_last(live: Live) -> Measurement:
    target = live.instance.target
    try:
        return engine_measurement(target.engine_url, engine=target.engine, token=live.order.key or None)
    except VramledgerError:
        return live.instance.measurement


def _manifest(order: Order) -> ManifestDocument:
    assert order.manifest is not None
    data = read_whole(order.manifest, MANIFEST_LIMIT_BYTES, InputError)
    return read_manifest(data, shown(order.manifest)).document


def _target(order: Order) -> Target:
    url = order.target or ""
    return Target(
        url=url,
        engine_url=order.engine_url or url,
        gateway_url=order.gateway_url,
        engine=order.engine,
        model=(order.model or "") if order.launch is None else "",
        launched=launched_words(order),
    )
