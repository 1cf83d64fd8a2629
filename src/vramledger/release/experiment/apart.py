"""What is looked at apart from the ladders, at one load: prefixes, bursts, clients that leave, conversations that wait for tools."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.experiment.drained import drained
from vramledger.experiment.plan import Kind, Step
from vramledger.experiment.result import Check
from vramledger.release.experiment.climbing import LOOKED_AT, steady_per_s
from vramledger.release.experiment.live import Live
from vramledger.release.experiment.sending import made_requests, send
from vramledger.release.experiment.work import Work
from vramledger.units import counted

RETURNED = "kv_returned"


def prefix(work: Work, live: Live) -> None:
    """The same load twice: prompts that begin alike, and the same without."""
    per_s = steady_per_s(work, live)
    for kind in (Kind.PREFIX_HIT, Kind.PREFIX_MISS):
        if kind.value not in _names(work, Step.PREFIX):
            send(work, live, step=Step.PREFIX, kind=kind, name=kind.value, per_s=per_s)


def disturbed(work: Work, live: Live) -> None:
    """The same load in bursts; clients that leave, after which all that they had must come back; and agents, at as many requests a second."""
    per_s = steady_per_s(work, live)
    if Kind.BURST.value not in _names(work, Step.DISTURBED):
        send(work, live, step=Step.DISTURBED, kind=Kind.BURST, name=Kind.BURST.value, per_s=per_s)
    if Kind.CANCELLED.value not in _names(work, Step.DISTURBED):
        before = live.watching.snapshot("before cancellations")
        sent = send(
            work, live, step=Step.DISTURBED, kind=Kind.CANCELLED, name=Kind.CANCELLED.value, per_s=per_s
        )
        work.told("cancelled: waiting for what they had")
        found = drained(
            live.watching,
            before,
            step=Step.DISTURBED,
            within_s=work.plan.drain_s,
            label="after cancellations",
        )
        work.add_checks(*(of_cancellation(check, sent.measured.left) for check in found.checks))
        work.add_snapshots(before, found.snapshot)
    if Kind.TOOLS.value not in _names(work, Step.DISTURBED):
        sessions = per_s / _requests_of_a_session(work, live)
        send(work, live, step=Step.DISTURBED, kind=Kind.TOOLS, name=Kind.TOOLS.value, per_s=sessions)


def of_cancellation(check: Check, left: int) -> Check:
    """The check that KV came back, as that after clients have left; of a stage that none left in the middle it tells nothing."""
    if check.name != RETURNED:
        return check
    named = replace(check, name=f"{check.name}_after_cancellation")
    if not left:
        return replace(named, passed=None, words="no client left before its answer was whole")
    return replace(named, words=f"{counted(left, 'client')} left before an answer was whole; {check.words}")


def _requests_of_a_session(work: Work, live: Live) -> float:
    _, requests = made_requests(
        work, live, Kind.TOOLS, per_s=1.0, seconds=float(LOOKED_AT), seed=work.plan.seed
    )
    sessions = sum(one.parent is None for one in requests)
    return len(requests) / sessions if sessions else 1.0


def _names(work: Work, step: Step) -> set[str]:
    return {stage.name for stage in work.stages(step)}
