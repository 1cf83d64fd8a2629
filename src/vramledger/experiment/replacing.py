"""The engine restarted under load, and replaced by a second instance that comes up while the first serves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import msgspec

from vramledger.errors import SourceError
from vramledger.experiment.headroom import Watched, room_of
from vramledger.experiment.launch import READY_S, Launched, Told
from vramledger.experiment.plan import Step
from vramledger.experiment.result import Check, Snapshot
from vramledger.experiment.served import Served
from vramledger.experiment.watching import Watching
from vramledger.telemetry.engine_process import EngineDied

NS_PER_S = 1_000_000_000
POLL_S = 0.1
ANSWER_S = 60.0
"""How long an answer is waited for, where none has come by the time that a load is to have settled."""
LOAD_ENDS_S = 900.0
RECOVERY, ROLLING = "recovery_headroom", "rolling_update"


class Sent(Protocol):
    """What came of a load: its rows."""

    @property
    def served(self) -> tuple[Served, ...]: ...


Load = Callable[[str, threading.Event, Callable[[Served], None]], Sent]
"""Sends load to the engine at an address until the event is set, waits for what is open then (`run_load`'s `stop_sending`), and says what
came of it; meanwhile the last argument is told of each request as it ends."""


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """`loads` are the rows of each load, in the order of the instances; `serving` is the instance that serves now, None where
    none does. `died` is what an instance ended with that was to come up."""

    checks: tuple[Check, ...]
    snapshots: tuple[Snapshot, ...]
    loads: tuple[tuple[Served, ...], ...] = ()
    serving: Launched | None = None
    died: EngineDied | None = None


def not_replaced(why: str, at_s: float) -> tuple[Check, ...]:
    """The checks of an experiment that may not start the engine."""
    return tuple(
        Check(name=name, step=Step.RESTART, at_s=at_s, words=f"not tested: {why}")
        for name in (RECOVERY, ROLLING)
    )


def restarted(
    engine: Launched,
    watching: Watching,
    load: Load,
    *,
    settle_s: float,
    ready_s: float = READY_S,
    told: Told = lambda _: None,
) -> Replaced:
    """End the engine under load and start it again by the same command at the same address, while the load goes on: what comes meanwhile is
    refused by nobody's fault. It passes where the engine is ready again, answers what comes then, and neither a device's memory nor
    a process was lost."""
    began_s = time.time()
    watching.mark("before restart")
    with _Loads(load) as loads:
        loads.begin(engine.url, settle_s)
        snapshots = [watching.snapshot("before restart")]
        told("restarting the engine under load")
        watching.mark("restart")
        ended_s = engine.stop(watching)
        snapshots.append(watching.snapshot("engine ended"))
        died, waited_s = None, 0.0
        try:
            waited_s, starts = engine.start(watching, ready_s=ready_s, told=told)
            ready_at_s = time.time()
            snapshots += [msgspec.structs.replace(one, label=f"restart: {one.label}") for one in starts]
            watching.mark("after restart")
            loads.go_on(settle_s)
        except EngineDied as problem:
            died, ready_at_s = problem, time.time()
        sent = loads.ended()
    snapshots.append(watching.snapshot("after restart"))
    room = room_of(watching.between(began_s, time.time()))
    since = loads.due_since(ready_at_s)
    answered = sum(row.whole for row in since)
    passed: bool | None
    if died is not None:
        words, passed = f"it did not come up again: {died.message}", False
    elif not since:
        words, passed = f"it came up again in {waited_s:.1f} s, and no request came any more", None
    elif not answered:
        words, passed = (
            f"it came up again in {waited_s:.1f} s, but answered none of {len(since)} requests",
            False,
        )
        words += _why(since)
    else:
        words = (
            f"ended within {ended_s:.1f} s and ready again after {waited_s:.1f} s; {answered} of {len(since)} requests that came then were "
            "answered"
        )
        passed = True
    return Replaced(
        checks=(_check(RECOVERY, passed, words, room, snapshots[0], snapshots[-1]),),
        snapshots=tuple(snapshots),
        loads=tuple(one.served for one in sent),
        serving=engine if died is None else None,
        died=died,
    )


def rolled(
    engine: Launched,
    watching: Watching,
    load: Load,
    *,
    settle_s: float,
    ready_s: float = READY_S,
    told: Told = lambda _: None,
) -> Replaced:
    """Start a second instance by the same command beside the first while that serves, put both under load, then end the first and let the
    second serve. It passes where the second comes up, no request of either fails, and neither a device's memory nor a process was lost."""
    began_s = time.time()
    second = engine.beside()
    watching.mark("before rolling update")
    is_up = False
    with _Loads(load) as loads:
        loads.begin(engine.url, settle_s)
        snapshots = [watching.snapshot("before rolling update")]
        told("starting a second instance under load")
        watching.mark("rolling update: second starts")
        died, waited_s = None, 0.0
        try:
            waited_s, starts = second.start(watching, ready_s=ready_s, told=told)
            is_up = True
            snapshots += [
                msgspec.structs.replace(one, label=f"rolling update: {one.label}") for one in starts
            ]
            watching.mark("rolling update: both serve")
            told("both instances under load")
            loads.begin(second.url, settle_s)
            snapshots.append(watching.snapshot("both serve"))
            loads.end(engine.url)
            watching.mark("rolling update: first ends")
            told("ending the first instance")
            engine.stop(watching)
            loads.go_on(settle_s)
        except EngineDied as problem:
            died = problem
            second.stop(watching)
        except BaseException:
            second.stop(watching)
            raise
        sent = loads.ended()
    snapshots.append(watching.snapshot("after rolling update"))
    room = room_of(watching.between(began_s, time.time()))
    rows = [row for one in sent for row in one.served]
    failed = [row for row in rows if _failed(row)]
    whole = sum(row.whole for row in rows)
    if died is not None:
        words, passed = f"the second instance did not come up beside the first: {died.message}", False
    else:
        words = f"the second instance was ready after {waited_s:.1f} s beside the first; {whole:,} requests answered"
        passed = not failed and whole > 0
        if failed:
            words += f", {len(failed):,} failed{_why(failed)}"
    return Replaced(
        checks=(_check(ROLLING, passed, words, room, snapshots[0], snapshots[-1]),),
        snapshots=tuple(snapshots),
        loads=tuple(one.served for one in sent),
        serving=second if is_up else engine,
        died=died,
    )


class _Loads:
    """Loads that run beside what is done to the engine; leaving ends them all."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="load")
        self._open: list[tuple[str, threading.Event, Future[Sent]]] = []
        self._heard: list[tuple[float, Served]] = []

    def __enter__(self) -> _Loads:
        return self

    def __exit__(self, *error: object) -> None:
        for _, stop, _ in self._open:
            stop.set()
        self._pool.shutdown(wait=True)

    def begin(self, url: str, settle_s: float) -> None:
        stop = threading.Event()
        self._open.append((url, stop, self._pool.submit(self._load, url, stop, self._hear)))
        self.go_on(settle_s)

    def _hear(self, row: Served) -> None:
        """With the time (Unix) at which it was due, by this moment, at which it ended."""
        self._heard.append((time.time() - (row.end_ns - row.due_ns) / NS_PER_S, row))

    def due_since(self, at_s: float) -> list[Served]:
        """Requests due from then on that have ended, but those that were not waited for."""
        return [row for due_s, row in list(self._heard) if due_s >= at_s and not row.left]

    def go_on(self, seconds: float) -> None:
        """Let them run, and until a request that came meanwhile was answered, but for no more than a minute longer. Raises what one of them
        raised."""
        from_s, began_s = time.time(), time.monotonic()
        while (waited_s := time.monotonic() - began_s) < seconds + ANSWER_S:
            if waited_s >= seconds and any(row.whole for row in self.due_since(from_s)):
                return
            sending = [one for _, _, one in self._open]
            for one in sending:
                if one.done():
                    one.result()
            if all(one.done() for one in sending) and waited_s >= seconds:
                return
            time.sleep(POLL_S)

    def end(self, url: str) -> None:
        """Send no more to one address, and wait for what is open there."""
        for known, stop, sending in self._open:
            if known == url:
                stop.set()
                _outcome(sending, known)

    def ended(self) -> list[Sent]:
        """All have ended: what came of each."""
        for _, stop, _ in self._open:
            stop.set()
        return [_outcome(sending, url) for url, _, sending in self._open]


def _outcome(sending: Future[Sent], url: str) -> Sent:
    try:
        return sending.result(LOAD_ENDS_S)
    except TimeoutError:
        if sending.done():
            raise
        raise SourceError(f"the load on {url} did not end within {LOAD_ENDS_S:g} s", source=url) from None


def _why(rows: list[Served]) -> str:
    """What the first of those failed with that failed."""
    bad = next((row for row in rows if not row.whole), None)
    if bad is None:
        return ""
    return f" (the first: {(bad.error or f'status {bad.status}')[:120]})"


def _failed(row: Served) -> bool:
    """Not answered, though its client waited; what was asked to come again later is no failure of the update."""
    return not row.whole and not row.left and row.status not in (429, 503) and row.sent_ns >= 0


def _check(
    name: str, passed: bool | None, words: str, room: Watched, before: Snapshot, after: Snapshot
) -> Check:
    smallest = room.smallest
    if room.oom_kills:
        passed = False
        words += f"; the kernel killed {room.oom_kills} processes for memory"
    if smallest is not None and smallest.bytes <= 0:
        passed = False
    if smallest is not None:
        words += f"; {smallest.words}"
    return Check(
        name=name,
        step=Step.RESTART,
        passed=passed,
        before=_rss(before),
        after=_rss(after),
        unit="bytes",
        smallest_headroom_bytes=None if smallest is None else smallest.bytes,
        source=smallest.source if smallest is not None else "",
        at_s=after.at_s,
        words=words,
    )


def _rss(snapshot: Snapshot) -> float | None:
    found = [sample.value for sample in snapshot.samples if sample.name == "rss_bytes"]
    return sum(found) if found else None
