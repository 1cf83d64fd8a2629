"""Which lines of the ledger a failure is about, and what would have kept it from happening."""

from __future__ import annotations

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.messages.kind import Domain
from vramledger.diagnosis.terms import FailureClass, Stage
from vramledger.ledger import Entry, Owner

_OF_STAGE: dict[Stage, tuple[Owner, ...]] = {
    Stage.STARTUP_CHECK: (Owner.RUNTIME_CONTEXT, Owner.HEADROOM),
    Stage.WEIGHT_LOAD: (Owner.WEIGHTS,),
    Stage.POST_LOAD: (Owner.WEIGHTS, Owner.ALLOCATOR),
    Stage.KV_SIZING: (Owner.KV_CACHE, Owner.WEIGHTS, Owner.ACTIVATION),
    Stage.KV_ALLOC: (Owner.KV_CACHE,),
    Stage.RUNTIME_BUFFERS: (Owner.WORKSPACE, Owner.KV_CACHE),
    Stage.PROFILE_RUN: (Owner.ACTIVATION, Owner.WORKSPACE, Owner.WEIGHTS),
    Stage.COMPUTE_BUFFERS: (Owner.ACTIVATION, Owner.WORKSPACE),
    Stage.GRAPH_CAPTURE: (Owner.GRAPH_POOL, Owner.WORKSPACE, Owner.KV_CACHE),
    Stage.SAMPLER_WARMUP: (Owner.ACTIVATION, Owner.HEADROOM),
    Stage.WARMUP_FORWARD: (Owner.ACTIVATION, Owner.WORKSPACE),
    Stage.FIRST_COLLECTIVE: (Owner.COLLECTIVES, Owner.HEADROOM),
    Stage.WAKE: (Owner.WEIGHTS, Owner.KV_CACHE),
}
_OF_CLASS: dict[FailureClass, tuple[Owner, ...]] = {
    FailureClass.LOAD_TIME: (Owner.WEIGHTS, Owner.KV_CACHE),
    FailureClass.WARM_UP: (Owner.ACTIVATION, Owner.GRAPH_POOL, Owner.WORKSPACE),
    FailureClass.PREFILL_SPIKE: (Owner.ACTIVATION, Owner.WORKSPACE, Owner.HEADROOM),
    FailureClass.DECODE_GROWTH: (Owner.KV_CACHE,),
    FailureClass.FRAGMENTATION: (Owner.ALLOCATOR, Owner.HEADROOM),
    FailureClass.RECOVERY: (Owner.RUNTIME_CONTEXT, Owner.HEADROOM),
}
_PREVENTION: dict[FailureClass, str] = {
    FailureClass.LOAD_TIME: "a plan of these flags on this device before the start, and a look at what the device already holds",
    FailureClass.WARM_UP: "a share that leaves what capture, sampler and first collectives take outside the profile",
    FailureClass.PREFILL_SPIKE: "a bound on the tokens of a step, or headroom, sized for the longest prompts that are admitted",
    FailureClass.DECODE_GROWTH: "admission by free blocks and future growth; an alarm on the slope of memory where load is constant",
    FailureClass.FRAGMENTATION: "expandable segments from the start, or headroom as large as what is free in pieces",
    FailureClass.RECOVERY: "waiting for free memory, not for the end of the process, before the next instance starts",
}
_PREVENTION_HOST = (
    "a limit of the host or the container above what loaders and caches hold together at their peak"
)
_PREVENTION_ON_CHIP = "a kernel configuration made for this device"
MOST_ENTRIES = 8


class LedgerLine(Struct, frozen=True, kw_only=True):
    """An owner that the failure is about; its entry and bytes on the fullest rank where a plan was made."""

    owner: Owner
    entry: str = ""
    bytes: int | None = None


def owners_of(facts: Facts, failure_class: FailureClass | None) -> tuple[Owner, ...]:
    """Whose bytes it is about; none for what is not in a device's ledger."""
    if facts.domain not in (Domain.DEVICE, Domain.KV_POOL, Domain.WORKSPACE, None):
        return ()
    if facts.domain is Domain.KV_POOL:
        return (Owner.KV_CACHE,)
    if facts.domain is Domain.WORKSPACE:
        return (Owner.WORKSPACE,)
    if failure_class in (FailureClass.LOAD_TIME, FailureClass.WARM_UP, FailureClass.RECOVERY) and facts.stage:
        found = _OF_STAGE.get(facts.stage)
        if found is not None:
            return found
    return () if failure_class is None else _OF_CLASS.get(failure_class, ())


def ledger_lines(
    facts: Facts, failure_class: FailureClass | None, plan: Plan | None
) -> tuple[LedgerLine, ...]:
    """The lines, largest first within each owner; without a plan the owners alone."""
    owners = owners_of(facts, failure_class)
    if plan is None or not plan.ranks:
        return tuple(LedgerLine(owner=owner) for owner in owners)
    fullest = max(plan.ranks, key=lambda rank: max(peak.bytes.expected for peak in rank.peaks))
    entries: list[Entry] = sorted(
        (entry for entry in fullest.entries if entry.owner in owners and entry.bytes.expected > 0),
        key=lambda entry: (owners.index(entry.owner), -entry.bytes.expected),
    )
    return tuple(
        LedgerLine(owner=entry.owner, entry=entry.name, bytes=entry.bytes.expected)
        for entry in entries[:MOST_ENTRIES]
    )


def prevention(facts: Facts, failure_class: FailureClass | None) -> str:
    """What would have kept it from happening, "" where that cannot be said."""
    if facts.domain is Domain.HOST:
        return _PREVENTION_HOST
    if facts.domain is Domain.SHARED_MEMORY_PER_BLOCK:
        return _PREVENTION_ON_CHIP
    return "" if failure_class is None else _PREVENTION.get(failure_class, "")
