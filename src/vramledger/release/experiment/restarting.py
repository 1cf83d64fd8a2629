"""The engine restarted, and replaced by a second one, under load."""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec.structs import replace

from vramledger.experiment.load import LoadRun, run_load
from vramledger.experiment.plan import Kind, Step
from vramledger.experiment.record_file import write_records
from vramledger.experiment.replacing import Load, Replaced, not_replaced, restarted, rolled
from vramledger.experiment.served import Served
from vramledger.experiment.settling import settle_s
from vramledger.release.experiment.climbing import steady_per_s
from vramledger.release.experiment.failing import failure_in
from vramledger.release.experiment.guard import EngineEnded
from vramledger.release.experiment.live import Live
from vramledger.release.experiment.sending import made_requests, seed_of
from vramledger.release.experiment.work import Skipped, Work

SHARE = 0.5
"""Of the steady load, for each instance: for a while two share one machine."""
MOST_REQUESTS = 50_000
"""Of a load that is made before it is sent."""
WHY_NOT = "the engine was not started here (--launch)"


def restart(work: Work, live: Live) -> None:
    """Both, one after the other; what serves afterwards is asked from then on."""
    if live.launched is None:
        work.add_checks(*not_replaced(WHY_NOT, work.clock()))
        raise Skipped(WHY_NOT)
    per_s = steady_per_s(work, live) * SHARE
    for number, (name, replacing) in enumerate((("restart", restarted), ("rolling-update", rolled))):
        found = replacing(
            live.launched,
            live.watching,
            _load(work, live, per_s, number),
            settle_s=settle_s(work.plan, per_s),
            ready_s=live.order.ready_s,
            told=work.told,
        )
        _keep(work, name, found)
        if found.serving is None:
            raise EngineEnded(name, found.died.message if found.died is not None else "it serves no more")
        _serve(live, found)


def _load(work: Work, live: Live, per_s: float, number: int) -> Load:
    """A load as long as anything may last; an instance's ends when it is told to."""
    lasts_s = min(2 * live.order.ready_s + 4 * work.plan.stage_s, MOST_REQUESTS / per_s)
    seed = seed_of(work.plan.seed, Step.RESTART, number)
    header, requests = made_requests(work, live, Kind.MIXED, per_s=per_s, seconds=lasts_s, seed=seed)

    def load(url: str, stop: threading.Event, told: Callable[[Served], None]) -> LoadRun:
        return run_load(
            live.server_at(url),
            header,
            requests,
            seed=seed,
            retries=work.plan.retries,
            told=told,
            stop_sending=stop.is_set,
        )

    return load


def _keep(work: Work, name: str, found: Replaced) -> None:
    for number, rows in enumerate(found.loads, 1):
        path, _ = work.journal.records_of(f"{name}-{number}")
        write_records(path, rows)
    work.add_checks(*found.checks)
    work.add_snapshots(*found.snapshots)
    if found.died is not None:
        failure = failure_in(Step.RESTART, name, work.clock(), log=str(found.died.facts.get("log", "")))
        words = failure.words if failure is not None else found.died.message
        work.note(f"{name}: {words}")


def _serve(live: Live, found: Replaced) -> None:
    assert found.serving is not None
    launched = live.launched = found.serving
    target = replace(
        live.instance.target, url=launched.url, engine_url=launched.url, pid=launched.process.pid
    )
    live.instance = replace(live.instance, target=target)
