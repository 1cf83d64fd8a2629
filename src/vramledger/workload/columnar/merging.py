"""Streams put together: one order of time, parents numbered within the whole, columns of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vramledger.workload.columnar.arrivals import LAST_NS
from vramledger.workload.columnar.rows import PLACE, Rows, joined_rows
from vramledger.workload.columnar.streams import Stream
from vramledger.workload.columns import BATCH, RequestColumns

NS = 10**9
_BATCH_IDS = 4_000_000


def merged_rows(
    streams: Sequence[Stream], window_ns: int, end_ns: int | None, start_ns: int = 0
) -> Iterator[Rows]:
    """Requests of all streams in order of time, window by window, parents numbered within the whole."""
    numbered = [np.empty(0, dtype=np.int64) for _ in streams]
    begins = [0 for _ in streams]
    told, window_end = 0, start_ns
    last_ns = LAST_NS if end_ns is None else min(end_ns, LAST_NS)
    while not all(stream.done for stream in streams) and window_end < last_ns:
        window_end = min(window_end + window_ns, last_ns)
        parts = [stream.until(window_end) for stream in streams]
        rows = joined_rows(parts)
        order = np.argsort(rows.column("arrival_ns"), kind="stable")
        numbers = np.empty(rows.size, dtype=np.int64)
        numbers[order] = np.arange(told, told + rows.size, dtype=np.int64)
        start = 0
        for place, (stream, part) in enumerate(zip(streams, parts, strict=True)):
            end = start + part.size
            known = np.concatenate([numbered[place], numbers[start:end]])
            parents = rows.values[start:end, PLACE["parent"]]
            has = parents >= 0
            parents[has] = known[parents[has] - begins[place]]
            kept = stream.first_needed - begins[place]
            numbered[place], begins[place] = known[kept:], begins[place] + kept
            start = end
        told += rows.size
        yield rows.taken(order)


def batches_of(windows: Iterator[Rows], requests: int | None) -> Iterator[RequestColumns]:
    """The first `requests` (all where None) as columns."""
    left = requests
    for rows in windows:
        taken = rows if left is None or rows.size <= left else rows.part(0, left)
        yield from _columns(taken)
        left = None if left is None else left - taken.size
        if left == 0:
            return


def _columns(rows: Rows) -> Iterator[RequestColumns]:
    """At most BATCH at once, and fewer where their identities are many."""
    reach = np.cumsum(rows.blocks_of_each())
    start = 0
    while start < rows.size:
        before = int(reach[start - 1]) if start else 0
        fits = int(np.searchsorted(reach, before + _BATCH_IDS, side="right"))
        end = min(max(fits, start + 1), start + BATCH, rows.size)
        yield rows.part(start, end).columns()
        start = end


def generator(*entropy: int) -> np.random.Generator:
    """Random numbers that belong to a seed and a place."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
