"""Which of a measurement's figures stand under the manifest's measured names. A prediction never does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.evidence import Evidence, measured, weakest
from vramledger.ledger import ByteRange, Owner, Phase, RankLedger, total
from vramledger.measurement import AllocatorState, Figure, HostMemory, MeasuredPool, Measurement
from vramledger.reconciliation.coverage import covers, ledgers_of
from vramledger.reconciliation.host_lines import is_on_host

_BESIDE_WEIGHTS = frozenset({Owner.WEIGHTS, Owner.ADAPTERS, Owner.ALLOCATOR})
_RUNNING = frozenset({Phase.WARMUP, Phase.PREFILL, Phase.DECODE, Phase.RECOVERY})
_LATEST_S = 253_402_300_799.0
"""The last second of the year 9999."""


class Seen(Struct, frozen=True, kw_only=True):
    """A figure of some ranks (none where the source names none) as it was seen, and when."""

    bytes: int
    evidence: Evidence
    range: ByteRange | None = None
    ranks: tuple[int, ...] = ()
    at_s: float | None = None


def steady_weights(plan: Plan, measurement: Measurement, rank: RankLedger) -> tuple[Seen, ...]:
    """Weights on a kind of rank after loading, one for each of its ranks that a source tells apart.

    Figures of the weights alone where there are any, else of the weights with adapters and what the allocator keeps beside
    them; else parts that have a figure for every entry of the weights between them, added up.
    """
    at_s = until(measurement)
    return tuple(
        Seen(
            bytes=sum(figure.bytes.expected for figure in figures),
            evidence=figures[0].evidence if len(figures) == 1 else _summed(figures),
            range=total(figure.bytes for figure in figures),
            ranks=figures[0].ranks,
            at_s=at_s,
        )
        for figures in weight_figures(plan, measurement, rank)
    )


def weight_figures(plan: Plan, measurement: Measurement, rank: RankLedger) -> tuple[tuple[Figure, ...], ...]:
    """The figures behind each of `steady_weights`."""
    found = [
        figure
        for figure in measurement.figures
        if _is_steady(figure)
        and not figure.on_host
        and _tells(figure.bytes)
        and rank in ledgers_of(plan, figure)
    ]
    whole = [figure for figure in found if not figure.entries]
    alone = [figure for figure in whole if figure.owners == (Owner.WEIGHTS,)]
    if whole:
        return tuple((figure,) for figure in alone or whole)
    by_ranks: dict[tuple[int, ...], list[Figure]] = {}
    for figure in found:
        by_ranks.setdefault(figure.ranks, []).append(figure)
    entries = [entry for entry in rank.entries if entry.owner is Owner.WEIGHTS]
    return tuple(
        tuple(parts)
        for parts in by_ranks.values()
        if entries and all(any(covers(part, entry) for part in parts) for entry in entries)
    )


def _summed(figures: tuple[Figure, ...]) -> Evidence:
    first = figures[0].evidence
    names = " + ".join(figure.name for figure in figures)
    return Evidence(
        kind=weakest([figure.evidence.kind for figure in figures]), source=first.source, formula=names
    )


def _is_steady(figure: Figure) -> bool:
    """Whether a figure is of weights after loading, with no more than what lies beside them."""
    return (
        Owner.WEIGHTS in figure.owners
        and set(figure.owners) <= _BESIDE_WEIGHTS
        and figure.phase is not Phase.LOAD
    )


def _tells(size: ByteRange) -> bool:
    """A print that rounds to nothing does not say that there is nothing."""
    return size.expected > 0 or size.is_exact


def runtime_peaks(plan: Plan, measurement: Measurement) -> tuple[Seen, ...]:
    """What devices held from warm-up on, one for each reading that tells it; of an instance of one rank that runs on the
    host, what its processes held together in each phase."""
    if is_on_host(plan):
        return _host_peaks(plan, measurement)
    return tuple(
        Seen(bytes=held, evidence=_held_evidence(state), ranks=state.ranks, at_s=state.at_s)
        for state in running_states(measurement)
        if (held := _held(state, measurement.device_total_bytes)) is not None
    )


def _host_peaks(plan: Plan, measurement: Measurement) -> tuple[Seen, ...]:
    if sum(len(rank.ranks) for rank in plan.ranks) != 1:
        return ()
    most: dict[Phase, dict[tuple[str, int | None], HostMemory]] = {}
    for item in measurement.host:
        if item.phase in _RUNNING and item.phase is not None and _resident(item) is not None:
            of_phase = most.setdefault(item.phase, {})
            key = (item.process, item.pid)
            if key not in of_phase or (_resident(item) or 0) > (_resident(of_phase[key]) or 0):
                of_phase[key] = item
    return tuple(
        Seen(
            bytes=sum(_resident(item) or 0 for item in found.values()),
            evidence=measured(
                next(iter(found.values())).evidence.source,
                f"{len(found)} processes in {phase.value}, proportional share or resident",
            ),
            ranks=plan.ranks[0].ranks,
            at_s=max((item.at_s for item in found.values() if item.at_s is not None), default=None),
        )
        for phase, found in most.items()
    )


def _resident(item: HostMemory) -> int | None:
    return item.rss_bytes if item.pss_bytes is None else item.pss_bytes


def device_free(measurement: Measurement) -> tuple[Seen, ...]:
    """What the driver called free from warm-up on."""
    return tuple(
        Seen(
            bytes=state.device_free_bytes.expected,
            evidence=state.evidence,
            ranks=state.ranks,
            at_s=state.at_s,
        )
        for state in running_states(measurement)
        if state.device_free_bytes is not None
    )


def running_states(measurement: Measurement) -> tuple[AllocatorState, ...]:
    """Readings of a phase after loading. One whose phase is not told may be of an idle device and is left out."""
    return tuple(state for state in measurement.allocator if state.phase in _RUNNING)


def kv_pool(measurement: Measurement) -> Seen | None:
    """The pool's bytes on a rank: of several figures of one kind of pool the smallest, kinds added up."""
    by_kind: dict[str, MeasuredPool] = {}
    for pool in measurement.pools:
        if pool.bytes is None or not _tells(pool.bytes):
            continue
        known = by_kind.get(pool.kind)
        if known is None or known.bytes is None or pool.bytes.expected < known.bytes.expected:
            by_kind[pool.kind] = pool
    pools = list(by_kind.values())
    if pools:
        size = sum(pool.bytes.expected for pool in pools if pool.bytes is not None)
        return Seen(bytes=size, evidence=pools[0].evidence, at_s=until(measurement))
    figures = [
        figure
        for figure in measurement.figures
        if figure.owners == (Owner.KV_CACHE,)
        and not (figure.entries or figure.on_host)
        and _tells(figure.bytes)
    ]
    if not figures:
        return None
    smallest = min(figures, key=lambda figure: figure.bytes.expected)
    return Seen(
        bytes=smallest.bytes.expected,
        evidence=smallest.evidence,
        ranks=smallest.ranks,
        at_s=until(measurement),
    )


def largest(found: Iterable[Seen]) -> Seen | None:
    """The one of most bytes; the first of equals."""
    return max(found, key=lambda seen: seen.bytes, default=None)


def least(found: Iterable[Seen]) -> Seen | None:
    """The one of fewest bytes; the first of equals."""
    return min(found, key=lambda seen: seen.bytes, default=None)


def of_ranks(found: Sequence[Seen], ranks: tuple[int, ...], *, only: bool) -> tuple[Seen, ...]:
    """Those of any of `ranks`; with `only` (there are no other ranks) also those whose source names no rank."""
    return tuple(seen for seen in found if set(seen.ranks) & set(ranks) or (only and not seen.ranks))


def until(measurement: Measurement) -> float | None:
    """The last time that a source spans, Unix time; None where none is dated."""
    times = [source.until_s for source in measurement.sources if source.until_s is not None]
    return max(times, default=None)


def utc(at_s: float | None) -> str | None:
    """Unix time as "2026-11-30T01:02:03Z"; None for a time that is not known or is no date."""
    if at_s is None or not 0 <= at_s <= _LATEST_S:
        return None
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _held(state: AllocatorState, device_total: ByteRange | None) -> int | None:
    total = state.device_total_bytes or device_total
    if total is not None and state.device_free_bytes is not None:
        return total.expected - state.device_free_bytes.expected
    if state.reserved_bytes is not None and state.outside_bytes is not None:
        return state.reserved_bytes.expected + state.outside_bytes.expected
    return None


def _held_evidence(state: AllocatorState) -> Evidence:
    formula = (
        "device total - device free"
        if state.device_free_bytes is not None
        else "reserved + held beside the allocator"
    )
    point = f", {state.point}" if state.point else ""
    return measured(f"{state.evidence.source}{point}", formula)
