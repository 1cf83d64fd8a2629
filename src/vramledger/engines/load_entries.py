"""The ledger's lines of what reading weight files takes, on the device and on the host."""

from __future__ import annotations

from vramledger.engines.checkpoint_reading import UNREAD_FILES, Reading
from vramledger.evidence import assumed, calculated
from vramledger.ledger import ByteRange, Entry, Lifetime, Owner, Phase

LOAD = frozenset({Phase.LOAD})


def device_load_entries(read: Reading, *, source: str, how: str) -> tuple[Entry, ...]:
    """What stands on each device beside the weights while files are read; nothing for most ways."""
    if not read.device.high:
        return ()
    return (
        _entry(
            Owner.WORKSPACE, f"files on the device ({how})", read.device, source, read.formula, is_known=True
        ),
    )


def host_load_entries(read: Reading, *, source: str, how: str, is_size_known: bool) -> tuple[Entry, ...]:
    """What the host holds while files are read, over all ranks."""
    if not read.host.high:
        return ()
    kind = "page cache of the weight files" if read.is_reclaimable else "weight files in host memory"
    return (
        _entry(Owner.WEIGHTS, f"{kind} ({how})", read.host, source, read.formula, is_known=is_size_known),
    )


def _entry(owner: Owner, name: str, size: ByteRange, source: str, formula: str, *, is_known: bool) -> Entry:
    evidence = calculated(source, formula) if is_known else assumed(f"{source}; {UNREAD_FILES}", formula)
    return Entry(
        owner=owner, name=name, lifetime=Lifetime.ITERATION, phases=LOAD, bytes=size, evidence=evidence, inside_budget=False
    )  # fmt: skip
