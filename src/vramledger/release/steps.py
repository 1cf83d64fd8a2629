"""A release in one go: plan, start the engine, measure, reconcile, manifest, audit, each into a file of a folder."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.documents.measurement import measurement_document
from vramledger.documents.plan import plan_document
from vramledger.engines import engine_name, find_engine, find_serving
from vramledger.engines.serving import serve_command
from vramledger.errors import FlagError, SourceError, VramledgerError
from vramledger.ledger import Owner, Phase
from vramledger.manifest.audit import Audited, Policy, audit
from vramledger.manifest.build import Given, build
from vramledger.manifest.declared import NOTHING_DECLARED, AdapterRevision, Facts, Trial
from vramledger.manifest.document import ManifestDocument, SourceRecord
from vramledger.manifest.identity import EngineIdentity, engine_identity
from vramledger.manifest.measured import utc
from vramledger.manifest.model_files import Identified, identify
from vramledger.manifest.writing import write_manifest
from vramledger.measurement import Measurement
from vramledger.models.checkpoint import Checkpoint
from vramledger.planning import load_model, plan
from vramledger.reconciliation.document import reconciliation_document
from vramledger.reconciliation.reconcile import reconcile
from vramledger.reconciliation.result import Reconciliation
from vramledger.reconciliation.trials import planner
from vramledger.release.build import XLLAMACPP, build_of
from vramledger.release.completions import served_model
from vramledger.release.exercise import Exercise, Limits, Step, exercise
from vramledger.release.usage import UsageProbe
from vramledger.telemetry.engine_process import EngineProcess, free_port, launch_words
from vramledger.telemetry.log_marks import LogMarks
from vramledger.telemetry.log_measurement import log_measurement
from vramledger.telemetry.merging import merged
from vramledger.telemetry.probes.engine import MetricsProbe, engine_measurement
from vramledger.telemetry.probes.host import HostProbe
from vramledger.telemetry.probes.nvml import Nvml
from vramledger.telemetry.series import Source
from vramledger.telemetry.series_file import read_series
from vramledger.telemetry.series_measurement import series_measurement
from vramledger.telemetry.watch import Watch
from vramledger.whole_file import write_document_file

HOST = "127.0.0.1"
PHASES = {"warm-up": Phase.WARMUP, "prefill": Phase.PREFILL, "decode": Phase.DECODE}

Told = Callable[[str], None]


class Order(Struct, frozen=True, kw_only=True):
    """What is asked for. `launch` is the user's own command, with {model}, {host} and {port}; `flags` are the engine's by
    name; `at` is when, as the manifest writes it."""

    model: str
    engine: str
    device: str
    out: Path
    at: str
    made_by: str
    flags: Mapping[str, object] = {}
    concurrency: int = 1
    launch: str | None = None
    engine_revision: str | None = None
    allow_unpinned: bool = False
    hash_weights: bool = True
    facts: Facts = NOTHING_DECLARED
    sources: tuple[SourceRecord, ...] = ()
    ready_s: float = 900.0
    interval_s: float = 0.25


class Release(Struct, frozen=True, kw_only=True):
    """All that came of it, and the command that was started."""

    command: tuple[str, ...]
    ready_after_s: float
    plan: Plan
    exercise: Exercise
    measurement: Measurement
    reconciliation: Reconciliation
    manifest: ManifestDocument
    audit: tuple[Audited, ...]


class _Run(Struct, frozen=True, kw_only=True):
    ready_after_s: float
    exercise: Exercise
    live: tuple[Measurement, ...]


def release(order: Order, *, told: Told = lambda _: None) -> Release:
    """Do it all, writing plan.json, engine.log, series.jsonl, measurement.json, reconciliation.json, manifest.json and
    audit.json into the folder.

    Raises InputError and its kin for what cannot be planned or started, EngineDied where the engine ends or is never ready; what
    was written until then stays.
    """
    try:
        order.out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SourceError(f"{order.out} cannot be made: {problem.strerror}", file=str(order.out)) from None
    told("hashing the model's files" if order.hash_weights else "reading the model's files")
    found = identify(order.model, hash_weights=order.hash_weights)
    told("planning")
    checkpoint = load_model(found.model)
    flags: dict[str, Any] = {"concurrency": order.concurrency, **order.flags}
    planned = plan(checkpoint, order.device, engine=order.engine, **flags)
    write_document_file(plan_document(planned), order.out / "plan.json")
    port = free_port()
    url = f"http://{HOST}:{port}"
    command = command_of(order, port)
    build = engine_identity(
        planned.inputs.engine,
        planned.inputs.engine_version,
        order.engine_revision or build_of(planned.inputs.engine, command),
        allow_unpinned=order.allow_unpinned,
    )
    log = order.out / "engine.log"
    series = order.out / "series.jsonl"
    ran = _run(order, planned, checkpoint, command, url, log, series, told)
    told("reading what happened")
    measurement = merged(
        (
            log_measurement((str(log),), engine=engine_name(order.engine)),
            *ran.live,
            series_measurement(read_series(series), str(series)),
        )
    )
    write_document_file(measurement_document(measurement), order.out / "measurement.json")
    told("reconciling")
    reconciled = reconcile(planned, measurement, replan=planner(checkpoint, concurrency=order.concurrency))
    write_document_file(reconciliation_document(reconciled), order.out / "reconciliation.json")
    told("writing the manifest")
    document = _manifest(order, found, checkpoint, planned, build, measurement, reconciled, ran.exercise)
    write_manifest(document, order.out / "manifest.json", force=True)
    return Release(
        command=command,
        ready_after_s=ran.ready_after_s,
        plan=planned,
        exercise=ran.exercise,
        measurement=measurement,
        reconciliation=reconciled,
        manifest=document,
        audit=audit(document, policy=Policy.RELEASE),
    )


def command_of(order: Order, port: int) -> tuple[str, ...]:
    """The command that will be started: the user's own, else the engine's server with the flags of the plan.

    Raises FlagError for a launch text that names something else in braces, or that no shell would split.
    """
    if order.launch is not None:
        return launch_words(order.launch, model=order.model, host=HOST, port=port)
    name = engine_name(order.engine)
    rules, _ = find_engine(order.engine)
    serving = find_serving(name)
    if serving is None:
        raise FlagError(f"how {name} is started is not known here; give --launch 'COMMAND'", flag="launch")
    command = serve_command(
        serving, rules.OPTIONS, model=order.model, host=HOST, port=port, values=order.flags
    )
    if command[0] != "llama-server" or shutil.which(command[0]) is not None:
        return command
    has_wheel = importlib.util.find_spec("xllamacpp") is not None
    return (sys.executable, "-m", XLLAMACPP, *command[1:]) if has_wheel else command


def _run(
    order: Order,
    planned: Plan,
    checkpoint: Checkpoint,
    command: tuple[str, ...],
    url: str,
    log: Path,
    series: Path,
    told: Told,
) -> _Run:
    name = engine_name(order.engine)
    with ExitStack() as stack:
        told(f"starting {command[0]}")
        engine = stack.enter_context(EngineProcess(command, url=url, log=log))
        metrics = MetricsProbe(url, engine=name)
        sources: list[Source] = [HostProbe(engine.pid), metrics, *_devices(stack)]
        marks = stack.enter_context(LogMarks(log, engine=name))
        watch = stack.enter_context(Watch(series, sources, interval_s=order.interval_s, marks=[marks]))
        waited = engine.wait_ready(
            order.ready_s, told=lambda waited: told(f"starting {command[0]}: {waited:.0f} s")
        )

        def mark(label: str) -> None:
            watch.mark(label, PHASES.get(label))
            told(f"asking the engine: {label}")

        live = [_asked(url, name)]
        limits = Limits(
            context_len=_context(planned),
            concurrency=_at_once(planned),
            vocab_size=max(checkpoint.model.vocab_size, 2),
        )
        done = exercise(
            url,
            served_model(url) or order.model,
            limits,
            UsageProbe([metrics], pool_tokens=planned.kv_pool.tokens.expected if planned.kv_pool else 1),
            mark=mark,
            check=engine.check,
        )
        live.append(_asked(url, name))
    return _Run(ready_after_s=waited, exercise=done, live=tuple(live[-1:]))


def _devices(stack: ExitStack) -> list[Source]:
    """The devices of this machine; none where there is no driver."""
    try:
        return [stack.enter_context(Nvml())]
    except SourceError:
        return []


def _asked(url: str, engine: str) -> Measurement:
    try:
        return engine_measurement(url, engine=engine)
    except VramledgerError as problem:
        return Measurement(sources=(), notes=(problem.message,))


def _context(planned: Plan) -> int:
    return planned.kv_pool.context_len if planned.kv_pool is not None else 2048


def _at_once(planned: Plan) -> int:
    return int(planned.kv_pool.max_concurrency.low) if planned.kv_pool is not None else 1


def _manifest(
    order: Order,
    found: Identified,
    checkpoint: Checkpoint,
    planned: Plan,
    build_identity: EngineIdentity,
    measurement: Measurement,
    reconciled: Reconciliation,
    done: Exercise,
) -> ManifestDocument:
    return build(
        Given(
            plan=planned,
            model=found.identity,
            engine=build_identity,
            at=order.at,
            made_by=order.made_by,
            checkpoint=checkpoint,
            measurement=measurement,
            reconciliation=reconciled,
            facts=replace(
                order.facts,
                tests=(*order.facts.tests, *_trials(done, planned)),
                adapters=_adapters(order, planned),
            ),
            sources=order.sources,
        )
    )


def _adapters(order: Order, planned: Plan) -> tuple[AdapterRevision, ...] | None:
    """None is served where the command that was started is ours and the plan holds none."""
    if order.facts.adapters is not None or order.launch is not None:
        return order.facts.adapters
    held = any(entry.owner is Owner.ADAPTERS for rank in planned.ranks for entry in rank.entries)
    return None if held else ()


def _trials(done: Exercise, planned: Plan) -> tuple[Trial, ...]:
    """What the exercise tested. Usage that the engine does not show is no test."""
    returned = done.returned
    if returned.holds is None:
        return ()
    step: Step = done.steps[-1]
    blocks = planned.kv_pool.num_blocks.expected if planned.kv_pool is not None else None
    before, after = returned.usage_before, returned.usage_after
    return (
        Trial(
            name="kv_returned_after_cancellation",
            passed=returned.holds,
            source=f"{returned.dropped} streams dropped by vramledger release; usage of the pool by the engine's metrics",
            at=utc(step.until_s) or "1970-01-01T00:00:00Z",
            free_blocks_before=None if blocks is None or before is None else blocks - round(blocks * before),
            free_blocks_after=None if blocks is None or after is None else blocks - round(blocks * after),
        ),
    )
