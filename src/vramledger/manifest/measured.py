"""Which of a measurement's figures stand under the manifest's measured names. A prediction never does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from vramledger.evidence import Evidence, measured
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, MeasuredPool, Measurement

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


def steady_weights(measurement: Measurement) -> tuple[Seen, ...]:
    """Weights on devices after loading, by ranks: figures of the weights alone where there are any, else of the
    weights with adapters and what the allocator keeps beside them."""
    found = [
        figure
        for figure in measurement.figures
        if is_steady_weights(figure.owners, figure.entries, figure.phase)
    ]
    alone = [figure for figure in found if figure.owners == (Owner.WEIGHTS,)]
    at_s = until(measurement)
    return tuple(
        Seen(
            bytes=figure.bytes.expected,
            evidence=figure.evidence,
            range=figure.bytes,
            ranks=figure.ranks,
            at_s=at_s,
        )
        for figure in alone or found
    )


def is_steady_weights(owners: tuple[Owner, ...], entries: tuple[str, ...], phase: Phase | None) -> bool:
    """Whether a figure is of the whole weights after loading, with no more than what lies beside them."""
    return (
        Owner.WEIGHTS in owners and set(owners) <= _BESIDE_WEIGHTS and not entries and phase is not Phase.LOAD
    )


def runtime_peaks(measurement: Measurement) -> tuple[Seen, ...]:
    """What devices held from warm-up on, one for each reading that tells it."""
    return tuple(
        Seen(bytes=held, evidence=_held_evidence(state), ranks=state.ranks, at_s=state.at_s)
        for state in running_states(measurement)
        if (held := _held(state, measurement.device_total_bytes)) is not None
    )


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
        if pool.bytes is None:
            continue
        known = by_kind.get(pool.kind)
        if known is None or known.bytes is None or pool.bytes.expected < known.bytes.expected:
            by_kind[pool.kind] = pool
    pools = list(by_kind.values())
    if pools:
        size = sum(pool.bytes.expected for pool in pools if pool.bytes is not None)
        return Seen(bytes=size, evidence=pools[0].evidence, at_s=until(measurement))
    figures = [
        figure for figure in measurement.figures if figure.owners == (Owner.KV_CACHE,) and not figure.entries
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


def owned(measurement: Measurement, owner: Owner) -> tuple[Figure, ...]:
    """Figures that cover entries of this owner."""
    return tuple(figure for figure in measurement.figures if owner in figure.owners)


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
