"""A workload cut short, or sent faster or slower."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import msgspec

from vramledger.errors import InputError
from vramledger.workload.columnar.piece import LATEST_NS, part
from vramledger.workload.columns import RequestColumns, Workload

MOST_SCALE = 10**6


def limited(workload: Workload, requests: int) -> Workload:
    """The first so many requests. A parent comes before what follows it, so none is missing."""

    def batches() -> Iterator[RequestColumns]:
        left = requests
        for batch in workload.batches():
            if batch.rows >= left:
                yield part(batch, 0, left)
                return
            left -= batch.rows
            yield batch

    return Workload(workload.header, batches)


def time_scaled(workload: Workload, factor: Fraction) -> Workload:
    """The same requests with all arrivals at `factor` times their time: 1/2 doubles the rate, and leaves no request out.

    Pauses, cancellations and deadlines stay as they are: they are tools', people's and promises' own. Raises InputError for
    a factor that is not from 1/1,000,000 to 1,000,000.
    """
    scale = factor.limit_denominator(MOST_SCALE)
    if not Fraction(1, MOST_SCALE) <= scale <= MOST_SCALE:
        raise InputError(f"times can be scaled by 0.000001 to 1,000,000, not by {float(factor):g}")
    top, bottom = scale.numerator, scale.denominator

    def batches() -> Iterator[RequestColumns]:
        for batch in workload.batches():
            times = batch.arrival_ns
            if batch.rows and int(times.max()) > LATEST_NS // top * bottom:
                raise InputError(f"{workload.header.source}: scaled times would be too far away")
            whole, rest = times // bottom, times % bottom
            yield batch._replace(arrival_ns=whole * top + rest * top // bottom)

    note = f"arrival times are {scale} of the trace's"
    header = msgspec.structs.replace(workload.header, notes=(*workload.header.notes, note))
    return Workload(header, batches)
