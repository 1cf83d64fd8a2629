"""From reasons against a plan to its verdict, the same way for every engine that lists its reasons."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.evidence import EvidenceKind
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, Owner, Phase, RankLedger
from vramledger.units import format_gib
from vramledger.verdict import Verdict


class Finding(Struct, frozen=True, kw_only=True):
    """One reason against a plan. `certain` tells a failure from something that cannot be told here."""

    certain: bool
    text: str
    shortfall_bytes: int = 0


def verdict_of(
    findings: Sequence[Finding],
    *,
    holds: str,
    conditions: tuple[str, ...],
    assumed: tuple[str, ...],
) -> Verdict:
    """Fails where a reason is certain, cannot be told where one may be, else holds as `holds` says."""
    failures = [item for item in findings if item.certain]
    unknown = [item for item in findings if not item.certain]
    if failures:
        return Verdict(
            holds=False,
            summary=f"does not fit: {failures[0].text}",
            shortfall_bytes=max(item.shortfall_bytes for item in failures),
            missing=tuple(item.text for item in failures[1:] + unknown),
            assumed=assumed,
        )
    if unknown:
        lie = "one figure lies" if len(unknown) == 1 else "figures lie"
        return Verdict(
            holds=None,
            summary=f"cannot be told: {lie} inside the range of what is left",
            conditions=conditions,
            missing=tuple(item.text for item in unknown),
            assumed=assumed,
        )
    return Verdict(holds=True, summary=holds, conditions=conditions, assumed=assumed)


def beyond_device(ranks: Sequence[RankLedger], device: Device) -> ByteRange:
    """The largest peak of any rank less the device's memory, end by end; negative where it is held."""
    peaks = [rank.occupied(phase) for rank in ranks for phase in Phase]
    return ByteRange(
        max(peak.low for peak in peaks) - device.total_high_bytes,
        max(peak.expected for peak in peaks) - device.total_bytes,
        max(peak.high for peak in peaks) - device.total_low_bytes,
    )


def device_limit(beyond: ByteRange, outside: str) -> list[Finding]:
    """What the engine leaves out of its own sum (`outside` names it) still has to be on the device."""
    if beyond.low > 0:
        text = f"with {outside} the device is short of at least {format_gib(beyond.low)}"
        return [Finding(certain=True, text=text, shortfall_bytes=beyond.low)]
    if beyond.expected > 0:
        text = f"{outside}: {format_gib(beyond.expected)} more than the device has are expected"
        return [Finding(certain=False, text=text)]
    return []


def assumptions(ranks: Sequence[RankLedger], device: Device) -> tuple[str, ...]:
    """Entries and figures that rest on a default nobody checked."""
    names = {
        f"{entry.owner.value}: {entry.name}"
        for rank in ranks
        for entry in rank.entries
        if entry.evidence.kind is EvidenceKind.ASSUMED and entry.owner is not Owner.KV_CACHE
    }
    names |= {
        f"host peak while loading: {rank.weights.host_evidence.source}"
        for rank in ranks
        if rank.weights.host_evidence.kind is EvidenceKind.ASSUMED
    }
    if device.evidence.kind is EvidenceKind.ASSUMED:
        names.add(f"device memory: {device.evidence.source}")
    return tuple(sorted(names))
