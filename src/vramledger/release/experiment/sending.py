"""One stage of load: made, foretold, sent, kept, summed up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vramledger.experiment.forecast import StageRun
from vramledger.experiment.ladder import holds
from vramledger.experiment.load import run_load
from vramledger.experiment.load_figures import drift_of, figures_of
from vramledger.experiment.misses import failures_text
from vramledger.experiment.plan import Kind, Step
from vramledger.experiment.record_file import records_of, write_records
from vramledger.experiment.result import Stage
from vramledger.experiment.served import Served
from vramledger.experiment.shapes import stage_requests
from vramledger.release.experiment.guard import EngineEnded
from vramledger.release.experiment.live import Live
from vramledger.release.experiment.work import Work
from vramledger.workload.request import Request, WorkloadHeader

SEEDS_OF_A_STEP = 1_000
SAY_EVERY_S = 0.5
LENGTHENED, MOST_LENGTHENED = 1.25, 20
CUT_OFF = "cut off in the middle, to be sent anew"


def made_requests(
    work: Work, live: Live, kind: Kind, *, per_s: float, seconds: float, seed: int
) -> tuple[WorkloadHeader, tuple[Request, ...]]:
    """What would be sent: the same for the same plan and seed, on any day."""
    return stage_requests(
        work.plan,
        kind,
        per_s=per_s,
        seconds=seconds,
        seed=seed,
        context_len=live.context_len,
        pool_tokens=live.pool_tokens,
        source=live.source,
        typical_ns=_typical_ns(work) if kind is Kind.CANCELLED else None,
    )


def _typical_ns(work: Work) -> int | None:
    """How long a request took under the last load of the widest mix that held; the ladders are climbed before anybody leaves."""
    stages = work.stages(Step.MIXED) or work.stages(Step.SHORT)
    held = [stage for stage in stages if holds(work.plan, stage) and stage.measured.latency_ns.count]
    return held[-1].measured.latency_ns.p50 if held else None


def send(
    work: Work,
    live: Live,
    *,
    step: Step,
    kind: Kind,
    name: str,
    per_s: float,
    seconds: float | None = None,
    number: int = 0,
) -> Stage:
    """Send it and keep it. `seconds` None is as long as the plan's stages are, and longer where fewer requests than it wants would come.

    Raises EngineEnded where the engine did not outlive it; what was sent until then is kept.
    """
    plan = work.plan
    seed = seed_of(plan.seed, step, number)

    def made(lasts_s: float) -> tuple[WorkloadHeader, tuple[Request, ...]]:
        return made_requests(work, live, kind, per_s=per_s, seconds=lasts_s, seed=seed)

    lasts_s = seconds
    if lasts_s is None:
        least_s = max(plan.stage_s, plan.stage_requests / per_s)
        lasts_s = long_enough_s(lambda one_s: len(made(one_s)[1]), least_s, plan.stage_requests)
    header, requests = made(lasts_s)
    what = f"{name}: {len(requests):,} requests in {lasts_s:.0f} s"
    work.told(f"{what}, foretold first")
    forecast = live.foretell(header, requests, plan.slo)
    live.watching.mark(name)
    came = _Came(work, what)
    began_s = work.clock()

    def kept(served: Sequence[Served], began_s: float, notes: Sequence[str], *, is_whole: bool) -> Stage:
        ended_s = work.clock()
        path, records = work.journal.records_of(name)
        write_records(path, served)
        samples = live.watching.between(began_s, ended_s)
        stage = Stage(
            step=step,
            name=name,
            kind=kind,
            per_s=per_s,
            seconds=lasts_s,
            seed=seed,
            began_s=began_s,
            ended_s=ended_s,
            records=records,
            measured=figures_of(served, plan.slo, samples=samples, pool_tokens=live.pool_tokens),
            forecast=forecast,
            drift=drift_of(served),
            is_whole=is_whole,
            notes=(*header.notes, *notes),
        )
        work.add_stage(stage)
        return stage

    try:
        with live.guard() as guard:
            run = run_load(
                live.server,
                header,
                requests,
                seed=seed,
                retries=plan.retries,
                told=came,
                stop=guard.stop.is_set,
                kind=kind.value,
            )
    except (KeyboardInterrupt, SystemExit):
        if came.rows:
            kept(sorted(came.rows, key=lambda row: row.number), began_s, (CUT_OFF,), is_whole=False)
        raise
    live.watching.mark(f"after {name}")
    notes = (*run.notes, guard.words) if guard.words else run.notes
    stage = kept(run.served, run.began_s, notes, is_whole=run.is_whole and not guard.words)
    if failures := failures_text(run.served):
        work.note(f"{name}: {failures}")
    if guard.words:
        raise EngineEnded(name, guard.words)
    live.remember(StageRun(name=name, header=header, requests=requests, served=run.served))
    return stage


def long_enough_s(requests_in: Callable[[float], int], least_s: float, wanted: int) -> float:
    """`least_s`, or longer until so many requests come by chance too: a stage with none would hold any load. A workload that never has so
    many is sent for some eighty times `least_s` at most."""
    lasts_s = least_s
    for _ in range(MOST_LENGTHENED):
        if requests_in(lasts_s) >= wanted:
            break
        lasts_s *= LENGTHENED
    return lasts_s


def learn(work: Work, live: Live) -> None:
    """From every stage until now, for the forecasts that follow."""
    work.told("fitting a step's time to what was measured")
    learned = live.learn()
    if learned is not None:
        work.change(latency_model=learned)


class _Came:
    """Rows as they come, so that those of a stage that is cut off are kept; and a word on how many there are."""

    def __init__(self, work: Work, what: str) -> None:
        self._work = work
        self._what = what
        self._said_s = 0.0
        self._began_s = work.clock()
        self.rows: list[Served] = []

    def __call__(self, row: Served) -> None:
        self.rows.append(row)
        now_s = self._work.clock()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            self._work.told(f"{self._what}; {len(self.rows):,} ended by {now_s - self._began_s:.0f} s")


def runs_again(work: Work, live: Live, stages: Sequence[Stage]) -> None:
    """Let the forecaster learn from stages that an earlier process sent: their requests are made again, their rows are in their files."""
    for stage in stages:
        header, requests = made_requests(
            work, live, stage.kind, per_s=stage.per_s, seconds=stage.seconds, seed=stage.seed
        )
        served = records_of(work.journal.folder, stage, work.plan.slo)
        live.remember(StageRun(name=stage.name, header=header, requests=requests, served=served))
    if stages:
        learn(work, live)


def seed_of(seed: int, step: Step, number: int) -> int:
    """Every stage has arrivals of its own, the same ones in every experiment of the same seed."""
    return (seed * len(Step) + list(Step).index(step)) * SEEDS_OF_A_STEP + number
