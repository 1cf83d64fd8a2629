"""The same requests sent otherwise: faster, with a burst, after an outage, with longer answers. None is ever left out of the middle.

Imports numpy, so import this module late.
"""

from __future__ import annotations

import numpy as np

from vramledger.workload.columns import SCALARS, Ints, RequestColumns

NS_PER_S = 1_000_000_000


def span_ns(columns: RequestColumns) -> int:
    """From the first arrival to the last of those that follow no other request: later turns come when they come."""
    starts = columns.arrival_ns[columns.parent < 0]
    return int(starts[-1] - starts[0]) if len(starts) else 0


def starts(columns: RequestColumns) -> int:
    """Requests that follow no other."""
    return int((columns.parent < 0).sum())


def per_s(columns: RequestColumns) -> float:
    """Requests a second as the workload has them, later turns with the conversations that they belong to; 0 where all come at once."""
    span, first = span_ns(columns), starts(columns)
    return (first - 1) * NS_PER_S / span * columns.rows / first if span else 0.0


def faster(columns: RequestColumns, factor: float) -> RequestColumns:
    """Arrivals `factor` times as fast. Pauses between turns, deadlines and cancellations are the clients' own and stay."""
    first = columns.arrival_ns[0] if columns.rows else 0
    return columns._replace(arrival_ns=_scaled(columns.arrival_ns - first, factor))


def with_burst(columns: RequestColumns, *, at_ns: int, lasts_ns: int, factor: float) -> RequestColumns:
    """From `at_ns` on requests come `factor` times as fast for `lasts_ns`; what follows keeps its spacing and so comes earlier."""
    arrivals = columns.arrival_ns
    end_ns = at_ns + int(lasts_ns * factor)
    within = (arrivals >= at_ns) & (arrivals < end_ns)
    shaped = np.where(arrivals >= end_ns, arrivals - (end_ns - at_ns - lasts_ns), arrivals)
    shaped[within] = at_ns + _scaled(arrivals[within] - at_ns, factor)
    return columns._replace(arrival_ns=shaped)


def after_outage(
    columns: RequestColumns, *, at_ns: int, down_ns: int, in_flight_ns: int
) -> tuple[RequestColumns, int]:
    """What meets an instance that went down at `at_ns` and is back after `down_ns`, and how many of that come at once.

    Time 0 is when it is back. Requests sent during the outage come then, and those sent up to `in_flight_ns` before it, which
    were still being served, come once more. Later turns whose parents were served before the outage come as the trace has them.
    """
    arrivals = columns.arrival_ns
    first = int(np.searchsorted(arrivals, at_ns - in_flight_ns))
    kept = rows_from(columns, first)
    shaped = np.maximum(kept.arrival_ns - (at_ns + down_ns), 0)
    herd = int(((kept.arrival_ns <= at_ns + down_ns) & (kept.parent < 0)).sum())
    return kept._replace(arrival_ns=shaped), herd


def rows_from(columns: RequestColumns, first: int, rows: int | None = None) -> RequestColumns:
    """Requests from number `first` on, at most `rows`; one whose parent is not among them has none."""
    last = columns.rows if rows is None else min(first + rows, columns.rows)
    offsets = columns.block_offsets[first : last + 1]
    known = {name: getattr(columns, name)[first:last] for name in SCALARS}
    parents = known["parent"] - first
    known["parent"] = np.where((known["parent"] >= 0) & (parents >= 0), parents, -1)
    start, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return RequestColumns(**known, block_offsets=offsets - start, block_ids=columns.block_ids[start:end])


def with_outputs(columns: RequestColumns, factor: float) -> RequestColumns:
    """Answers `factor` times as long, of at least one token; bounds that clients set grow along."""
    bounds = columns.max_output_tokens
    return columns._replace(
        output_tokens=np.maximum(_scaled(columns.output_tokens, 1 / factor), 1),
        max_output_tokens=np.where(bounds >= 0, np.maximum(_scaled(bounds, 1 / factor), 1), -1),
    )


def _scaled(values: Ints, factor: float) -> Ints:
    """values / factor, rounded: one division of doubles a value, the same everywhere."""
    return np.rint(values / factor).astype(np.int64)
