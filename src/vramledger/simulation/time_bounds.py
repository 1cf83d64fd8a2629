"""What a simulation's clock holds: whole picoseconds in 64 bits are 106 days."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramledger.errors import InputError

if TYPE_CHECKING:
    from vramledger.workload.columns import RequestColumns, Workload

LATEST_NS = 104 * 86_400 * 10**9
"""Of a request's own times together; two days are left for what is served after the last one."""
_SPANS = ("pause_ns", "cancel_ns", "first_token_deadline_ns", "deadline_ns")


def within_clock(workload: Workload) -> Workload:
    """The same workload, whose batches raise InputError for a request that comes, waits or ends too late for the clock."""
    from vramledger.workload.columns import Workload

    def batches() -> Iterator[RequestColumns]:
        for batch in workload.batches():
            if batch.rows:
                spans = max(int(getattr(batch, name).max()) for name in _SPANS)
                if int(batch.arrival_ns.max()) + max(spans, 0) > LATEST_NS:
                    raise InputError(
                        f"{workload.header.name or 'the workload'} goes on for more than {LATEST_NS // (86_400 * 10**9)} days, "
                        "which a simulation's picoseconds do not hold: take its first requests (--limit) or scale its times "
                        "(--scale-time)"
                    )
            yield batch

    return Workload(workload.header, batches)
