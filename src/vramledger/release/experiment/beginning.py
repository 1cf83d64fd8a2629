"""The steps before any load: memory as the engine starts, its warm-up, its pool."""

from __future__ import annotations

from vramledger.experiment.pool_confirmed import pool_confirmed, with_log
from vramledger.experiment.result import PoolConfirmed
from vramledger.measurement import Measurement
from vramledger.release.experiment.live import Live
from vramledger.release.experiment.work import Skipped, Work


def load(work: Work, live: Live) -> None:
    """Memory before the engine and with its weights, where it was started here."""
    if live.launched is None:
        work.add_snapshots(live.watching.snapshot("found running"))
        raise Skipped("the engine was running already: what was free before its weights is not to be seen")
    work.add_snapshots(*live.started)


def warmed(work: Work, live: Live) -> None:
    """All shapes once, and memory after them."""
    found = live.warm_up(work.told)
    for seen in found.shapes:
        if seen.failed:
            work.note(f"warm-up: {seen.shape.name}: {seen.failed} not answered ({seen.problem})")
    work.add_snapshots(live.watching.snapshot("after warm-up"))


def confirmed(work: Work, live: Live) -> None:
    """The pool by the engine, beside the plan's."""
    live.pool = pool_of(live)
    work.change(pool=live.pool)


def pool_of(live: Live) -> PoolConfirmed:
    """Whatever the engine says of its pool now."""
    return pool_confirmed(told_of(live), None if live.planned is None else live.planned.kv_pool)


def told_of(live: Live) -> Measurement:
    """What the engine said of itself: over HTTP, and in its log where it was started here."""
    return with_log(live.instance.measurement, () if live.launched is None else live.launched.logs)
