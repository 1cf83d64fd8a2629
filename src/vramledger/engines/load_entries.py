"""The ledger's lines of what reading weight files takes, on the device and on the host."""

from __future__ import annotations

from vramledger.engines.checkpoint_reading import UNREAD_FILES, Reading
from vramledger.evidence import assumed, calculated
from vramledger.ledger import Entry, Lifetime, Owner, Phase

LOAD = frozenset({Phase.LOAD})


def device_load_entries(read: Reading, *, source: str, how: str) -> tuple[Entry, ...]:
    """What stands on each device beside the weights while files are read, charged to no budget; nothing for most ways."""
    if not read.device.high:
        return ()
    return (
        Entry(
            owner=Owner.WORKSPACE,
            name=f"files on the device ({how})",
            lifetime=Lifetime.ITERATION,
            phases=LOAD,
            bytes=read.device,
            evidence=calculated(source, read.formula),
            inside_budget=False,
        ),
    )


def host_load_entries(read: Reading, *, source: str, how: str, is_size_known: bool) -> tuple[Entry, ...]:
    """What the host holds while files are read, over all ranks."""
    if not read.host.high:
        return ()
    kind = "page cache of the weight files" if read.is_reclaimable else "weight files in host memory"
    return (
        Entry(
            owner=Owner.WEIGHTS,
            name=f"{kind} ({how})",
            lifetime=Lifetime.ITERATION,
            phases=LOAD,
            bytes=read.host,
            evidence=calculated(source, read.formula)
            if is_size_known
            else assumed(f"{source}; {UNREAD_FILES}", read.formula),
        ),
    )
