"""Requests of long prompts held as runs of consecutive block ids: what agents' conversations take little room in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vramledger.workload.columnar.piece import MOST_BLOCK_IDS, ragged
from vramledger.workload.columns import BATCH, SCALARS, Ints, RequestColumns, joined


class HeldRuns:
    """Requests collected in any order, given in order of arrival.

    `parent` of what is added counts from the start of that part.
    """

    def __init__(self) -> None:
        self._parts: list[RequestColumns] = []
        self._firsts: list[Ints] = []
        self._counts: list[Ints] = []
        self._rows = 0

    def add(self, columns: RequestColumns) -> None:
        """Take requests in."""
        firsts, counts, offsets = _runs(columns.block_offsets, columns.block_ids)
        shifted = np.where(columns.parent < 0, -1, columns.parent + self._rows)
        self._rows += columns.rows
        self._firsts.append(firsts)
        self._counts.append(counts)
        # The runs take the place of the ids; they are expanded when a batch is asked for.
        self._parts.append(columns._replace(parent=shifted, block_offsets=offsets, block_ids=firsts))

    def in_order(self) -> OrderedRuns:
        """All of them by arrival; parents by their new places."""
        together = joined(self._parts)
        order = np.argsort(together.arrival_ns, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        parent = np.where(together.parent < 0, -1, place[np.maximum(together.parent, 0)])
        offsets, places = ragged(together.block_offsets, order)
        counts = np.concatenate(self._counts) if self._counts else np.empty(0, dtype=np.int64)
        scalars = {name: getattr(together._replace(parent=parent), name)[order] for name in SCALARS}
        return OrderedRuns(
            RequestColumns(**scalars, block_offsets=offsets, block_ids=together.block_ids[places]),
            counts[places],
        )


class OrderedRuns:
    """Such requests in order; `batches` expands their blocks, so many at a time as a batch may hold."""

    def __init__(self, columns: RequestColumns, counts: Ints) -> None:
        self._columns = columns
        self._counts = counts

    @property
    def rows(self) -> int:
        """How many requests there are."""
        return self._columns.rows

    def batches(self) -> Iterator[RequestColumns]:
        """All requests."""
        columns, counts = self._columns, self._counts
        total = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=total[1:])
        reach = total[columns.block_offsets]
        start = 0
        while start < columns.rows:
            fits = int(np.searchsorted(reach, int(reach[start]) + MOST_BLOCK_IDS, side="right")) - 1
            stop = min(max(fits, start + 1), start + BATCH, columns.rows)
            yield self._expanded(start, stop, reach)
            start = stop
        if not columns.rows:
            yield columns

    def _expanded(self, start: int, stop: int, reach: Ints) -> RequestColumns:
        columns = self._columns
        runs = slice(int(columns.block_offsets[start]), int(columns.block_offsets[stop]))
        firsts, counts = columns.block_ids[runs], self._counts[runs]
        before = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=before[1:])
        ids = np.repeat(firsts - before[:-1], counts) + np.arange(before[-1], dtype=np.int64)
        return RequestColumns(
            **{name: getattr(columns, name)[start:stop] for name in SCALARS},
            block_offsets=reach[start : stop + 1] - reach[start],
            block_ids=ids,
        )


def _runs(offsets: Ints, ids: Ints) -> tuple[Ints, Ints, Ints]:
    """(first id, ids of each run, offsets of requests among the runs)."""
    if not len(ids):
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, np.zeros(len(offsets), dtype=np.int64)
    begins = np.zeros(len(ids), dtype=np.bool_)
    begins[0] = True
    begins[1:] = np.diff(ids) != 1
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    places = np.flatnonzero(begins)
    counts = np.diff(np.append(places, len(ids)))
    return ids[places], counts, np.searchsorted(places, offsets).astype(np.int64)
