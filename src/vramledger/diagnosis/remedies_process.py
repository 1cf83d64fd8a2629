"""Remedies outside of the engine's memory settings: other holders, more ranks, the host, and what no memory flag helps."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.diagnosis.messages.kind import Domain
from vramledger.diagnosis.remedy import Basis, Case, Remedy, tried_on_plan, whole_setting, worst
from vramledger.diagnosis.terms import Stage
from vramledger.ledger import Owner, RankLedger
from vramledger.units import format_bytes


def other_holders(case: Case) -> Iterator[Remedy]:
    held = case.facts.others_bytes
    if (
        held is None
        and case.sums.largest_share is not None
        and case.sums.total_bytes
        and case.sums.available_bytes
    ):
        held = case.sums.total_bytes - case.sums.available_bytes
    if held is None or case.sums.total_bytes is None or held.expected < case.sums.total_bytes.expected // 20:
        return
    if (case.facts.siblings_alike or 0) > 0:
        yield Remedy(
            change="give each rank its own device (CUDA_VISIBLE_DEVICES, local rank)",
            effect=f"{case.facts.siblings_alike} more processes of this size are on the device",
            frees_bytes=held.expected,
            basis=Basis.MESSAGES,
        )
        return
    yield Remedy(
        change="end or move what else holds the device (nvidia-smi names its processes)",
        effect=f"frees up to {format_bytes(held.expected)}",
        frees_bytes=held.expected,
        basis=Basis.MESSAGES,
    )


def wait_for_holder(case: Case) -> Iterator[Remedy]:
    ago = case.facts.previous_engine_s
    yield Remedy(
        change="start again once the previous holder has given its memory back; do not lower the share for it",
        effect="wait until free memory is what an empty device has"
        + (f"; the previous engine's last line is {ago:.0f} s older" if ago is not None else ""),
        frees_bytes=None if case.sums.missing_bytes is None else case.sums.missing_bytes.expected,
        basis=Basis.MESSAGES if case.sums.missing_bytes is not None else Basis.RULE,
    )


def more_ranks(case: Case) -> Iterator[Remedy]:
    name = case.knobs.parallel
    if name is None:
        return
    now = whole_setting(case, name)
    tried = tried_on_plan(case, {name: 2 * (now or 1)})
    effect, freed, basis = "each rank holds half of what is cut over ranks", None, Basis.RULE
    if tried is not None:
        freed = worst(tried[0], _static) - worst(tried[1], _static)
        effect, basis = f"weights of a rank shrink by {format_bytes(freed)}", Basis.LEDGER
    else:
        weights = case.facts.weights_bytes
        if weights is not None:
            freed, basis = weights.expected // 2, Basis.MESSAGES
            effect = (
                f"about {format_bytes(freed)} of {format_bytes(weights.expected)} of weights leave this rank"
            )
    yield Remedy(
        change=f"{name} {now} → {2 * now}" if now else f"twice as many ranks ({name})",
        effect=effect,
        frees_bytes=freed,
        basis=basis,
        needs="" if freed is not None else "--model and --device",
    )


def _static(rank: RankLedger) -> int:
    return rank.owned(Owner.WEIGHTS).expected


def _smaller_cache(case: Case) -> Iterator[Remedy]:
    """Of a KV cache that is allocated for the whole context at once."""
    facts, name = case.facts, case.knobs.length
    now = whole_setting(case, name)
    if facts.stage is not Stage.KV_ALLOC or name is None or now is None or facts.requested_bytes is None:
        return
    half = facts.requested_bytes.expected // 2
    yield Remedy(
        change=f"{name} {now} → {now // 2}",
        effect=f"this allocation shrinks by {format_bytes(half)}, costs {now // 2:,} KV tokens",
        frees_bytes=half,
        tokens=-(now // 2),
        basis=Basis.MESSAGES,
    )


def host_memory(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    yield from _smaller_cache(case)
    base = case.base
    if (
        base is not None
        and base.ranks
        and facts.stage in (None, Stage.STARTING, Stage.HOST_LOAD, Stage.WEIGHT_LOAD)
    ):
        peak = max((rank.weights.host_peak_bytes for rank in base.ranks), key=lambda size: size.expected)
        ranks = sum(len(rank.ranks) for rank in base.ranks)
        yield Remedy(
            change=f"give the host at least {format_bytes(peak.expected * ranks)} while weights are read",
            effect=f"{ranks} loaders of {format_bytes(peak.expected)} each at their peak",
            frees_bytes=None,
            basis=Basis.LEDGER,
        )
    if facts.needed_bytes is not None and facts.available_bytes is not None:
        short = facts.needed_bytes.expected - facts.available_bytes.expected
        yield Remedy(
            change=f"a host with {format_bytes(short)} more memory, or a smaller model or format",
            effect=f"{format_bytes(facts.needed_bytes.expected)} are needed",
            frees_bytes=short,
            basis=Basis.MESSAGES,
        )
    elif facts.requested_bytes is not None:
        yield Remedy(
            change=f"leave room for {format_bytes(facts.requested_bytes.expected)} more under the process's limit (ulimit -v, cgroup)",
            effect="one allocation of that size was refused",
            frees_bytes=facts.requested_bytes.expected,
            basis=Basis.MESSAGES,
        )
    resident = facts.resident_bytes
    yield Remedy(
        change="raise the container's or host's limit, or let fewer processes load at once",
        effect=f"the killed process had {format_bytes(resident.expected)} resident" if resident else "",
        needs="" if resident else "the kernel's line, for what the process had resident",
    )


def more_slots(case: Case) -> Iterator[Remedy]:
    name = case.knobs.sequences or "the number of request slots"
    yield Remedy(
        change=f"raise {name}, or send fewer requests at once", effect="slots are counted, not bytes"
    )


def not_memory(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    if facts.domain is Domain.SHARED_SEGMENT:
        yield Remedy(
            change="a larger /dev/shm (--shm-size, an emptyDir of medium Memory)", effect="the mount was full"
        )
    elif facts.requested_bytes is not None and facts.domain is Domain.SHARED_MEMORY_PER_BLOCK:
        yield Remedy(
            change="another kernel, smaller blocks or fewer stages; no memory flag helps",
            effect=f"the kernel wants {facts.requested_bytes.expected:,} bytes of on-chip memory a block",
            basis=Basis.MESSAGES,
        )
