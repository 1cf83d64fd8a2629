"""One line of a rank's ledger, in short."""

from __future__ import annotations

from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Entry, Lifetime, Owner, Phase


def entry(
    owner: Owner,
    name: str,
    phases: frozenset[Phase],
    size: ByteRange | int,
    evidence: Evidence,
    *,
    lifetime: Lifetime = Lifetime.WORKER,
    inside: bool = True,
    is_remainder: bool = False,
) -> Entry:
    """An entry of `size`, exact where it is a whole number."""
    return Entry(
        owner=owner,
        name=name,
        lifetime=lifetime,
        phases=phases,
        bytes=size if isinstance(size, ByteRange) else ByteRange.exact(size),
        evidence=evidence,
        inside_budget=inside,
        is_remainder=is_remainder,
    )
