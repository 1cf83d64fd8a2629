"""Which leading blocks of a prompt an earlier request had: what a cache of any size would find."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vramledger.errors import InputError
from vramledger.workload.columns import RequestColumns

Ints = npt.NDArray[np.int64]
MOST_DENSE_ID = 2**26
MOST_DISTINCT_BLOCKS = 2**27


class FirstUse:
    """Goes through a workload batch by batch. Identities are chained, so what is found is a leading run."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._seen: dict[int, _Seen] = {}
        self._next = 0

    def found(self, batch: RequestColumns) -> tuple[Ints, Ints]:
        """For each request the leading blocks of its prompt that an earlier one of its boundary had (a last block that is not
        full counts where its source names it), and the request that had the last of them first, -1 for none.

        Raises InputError past 2**27 distinct blocks.
        """
        numbers = np.arange(self._next, self._next + batch.rows, dtype=np.int64)
        self._next += batch.rows
        lengths = np.diff(batch.block_offsets)
        asked = np.minimum(lengths, -(-batch.prompt_tokens // self._block_tokens))
        found = np.zeros(batch.rows, dtype=np.int64)
        owners = np.full(batch.rows, -1, dtype=np.int64)
        if not len(batch.block_ids):
            return found, owners
        owner = np.repeat(numbers, lengths)
        first = self._first(batch, owner, lengths)
        places = np.arange(len(owner), dtype=np.int64)
        misses = np.where(first < owner, len(owner), places)
        has = lengths > 0
        starts, ends = batch.block_offsets[:-1][has], batch.block_offsets[1:][has]
        run = np.minimum(np.minimum.reduceat(misses, starts), ends) - starts
        found[has] = np.minimum(run, asked[has])
        hits = found > 0
        owners[hits] = first[batch.block_offsets[:-1][hits] + found[hits] - 1]
        return found, owners

    def _first(self, batch: RequestColumns, owner: Ints, lengths: Ints) -> Ints:
        """For each identity of a batch the first request of its boundary that named it."""
        kinds = np.unique(batch.boundary).tolist()
        if len(kinds) == 1:
            return self._seen.setdefault(kinds[0], _Seen()).first(batch.block_ids, owner)
        first = np.empty(len(owner), dtype=np.int64)
        boundaries = np.repeat(batch.boundary, lengths)
        for boundary in kinds:
            here = boundaries == boundary
            first[here] = self._seen.setdefault(boundary, _Seen()).first(batch.block_ids[here], owner[here])
        return first


class _Seen:
    """The number of the request that named an identity first: an array for small identities, a table for others."""

    def __init__(self) -> None:
        self._dense = np.full(2**12, -1, dtype=np.int32)
        self._sparse: dict[int, int] = {}

    def first(self, ids: Ints, owner: Ints) -> Ints:
        """For each identity, in order of requests, the first request that named it, itself included."""
        small = ids < MOST_DENSE_ID
        if small.all():
            return self._in_array(ids, owner)
        out = np.empty(len(ids), dtype=np.int64)
        out[small] = self._in_array(ids[small], owner[small])
        pairs = zip(ids[~small].tolist(), owner[~small].tolist(), strict=True)
        out[~small] = [self._sparse.setdefault(block, number) for block, number in pairs]
        if len(self._sparse) > MOST_DISTINCT_BLOCKS:
            raise InputError(f"the workload names more than {MOST_DISTINCT_BLOCKS:,} distinct blocks")
        return out

    def _in_array(self, ids: Ints, owner: Ints) -> Ints:
        most = int(ids.max(initial=0))
        if most >= len(self._dense):
            grown = np.full(min(max(most + 1, 2 * len(self._dense)), MOST_DENSE_ID), -1, dtype=np.int32)
            grown[: len(self._dense)] = self._dense
            self._dense = grown
        new = np.flatnonzero(self._dense[ids] < 0)
        # Of several assignments to one place the last holds, so the first request's comes last.
        self._dense[ids[new[::-1]]] = owner[new[::-1]]
        return self._dense[ids].astype(np.int64)
