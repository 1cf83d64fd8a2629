"""Memory of a rank beside the terms every plan has: what a flag of parallelism or transfer adds."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from vramledger.evidence import Evidence
from vramledger.ledger import ALL_PHASES, ZERO, ByteRange, Entry, Lifetime, Owner, Phase, total


class Extra(Struct, frozen=True, kw_only=True):
    """One entry of a rank to be.

    `charged` is whether the engine's profile sees it, so that it shrinks the pool; `loaded` whether "Model
    loading took" counts it too.
    """

    owner: Owner
    name: str
    bytes: ByteRange
    charged: bool
    evidence: Evidence
    loaded: bool = False
    phases: frozenset[Phase] = ALL_PHASES
    lifetime: Lifetime = Lifetime.WORKER


def extra(
    owner: Owner,
    name: str,
    phases: frozenset[Phase],
    size: ByteRange | int,
    evidence: Evidence,
    *,
    charged: bool,
    lifetime: Lifetime = Lifetime.WORKER,
) -> Extra:
    """An extra of `size`, exact where it is a whole number."""
    return Extra(
        owner=owner,
        name=name,
        bytes=size if isinstance(size, ByteRange) else ByteRange.exact(size),
        charged=charged,
        evidence=evidence,
        phases=phases,
        lifetime=lifetime,
    )


def charged_bytes(extras: Iterable[Extra]) -> ByteRange:
    """What the extras take from the pool."""
    charged = [item.bytes for item in extras if item.charged]
    return total(charged) if charged else ZERO


def loaded_bytes(extras: Iterable[Extra]) -> int:
    """What they add to "Model loading took"."""
    return sum(item.bytes.expected for item in extras if item.loaded)


def extra_entries(extras: Iterable[Extra]) -> list[Entry]:
    """The ledger's lines."""
    return [
        Entry(
            owner=item.owner,
            name=item.name,
            lifetime=item.lifetime,
            phases=item.phases,
            bytes=item.bytes,
            evidence=item.evidence,
            inside_budget=item.charged,
        )
        for item in extras
    ]
