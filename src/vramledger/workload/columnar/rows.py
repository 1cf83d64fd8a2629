"""Requests on their way to columns: a matrix of their numbers, and their identities as runs of consecutive ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramledger.workload.columns import SCALARS, RequestColumns, columns_with

Ints = npt.NDArray[np.int64]
PLACE = {name: place for place, name in enumerate(SCALARS)}


class Rows(NamedTuple):
    """`values[i, PLACE[name]]` is a number of request `i`; its identities are `run_counts[i]` runs, each `run_first`,
    `run_first + 1`, ... of `run_length`. Runs stand one request after the other."""

    values: Ints
    run_counts: Ints
    run_first: Ints
    run_length: Ints

    @property
    def size(self) -> int:
        """How many requests there are."""
        return len(self.values)

    def column(self, name: str) -> Ints:
        """A view of one number of all requests."""
        view: Ints = self.values[:, PLACE[name]]
        return view

    def taken(self, order: Ints) -> Rows:
        """Requests at the places `order`, in that order."""
        starts = np.cumsum(self.run_counts) - self.run_counts
        counts = self.run_counts[order]
        runs = spread(starts[order], counts)
        return Rows(self.values[order], counts, self.run_first[runs], self.run_length[runs])

    def blocks_of_each(self) -> Ints:
        """How many identities each request has."""
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.run_length)])
        places = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.run_counts)])
        blocks: Ints = np.diff(ends[places])
        return blocks

    def part(self, start: int, end: int) -> Rows:
        """Requests `start` to `end`."""
        first, last = int(self.run_counts[:start].sum()), int(self.run_counts[:end].sum())
        return Rows(
            self.values[start:end],
            self.run_counts[start:end],
            self.run_first[first:last],
            self.run_length[first:last],
        )

    def columns(self) -> RequestColumns:
        """The same requests as columns."""
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.blocks_of_each())])
        return columns_with(
            **{name: self.values[:, place] for name, place in PLACE.items()},
            block_offsets=offsets,
            block_ids=spread(self.run_first, self.run_length),
        )


def spread(firsts: Ints, counts: Ints) -> Ints:
    """`first, first + 1, ...` of each count, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(firsts - (ends - counts), counts) + np.arange(total, dtype=np.int64)


def plain_rows(values: Ints, firsts: Ints | None = None, lengths: Ints | None = None) -> Rows:
    """Requests of one run each, or of no identities."""
    count = len(values)
    none = np.empty(0, dtype=np.int64)
    if firsts is None or lengths is None:
        return Rows(values, np.zeros(count, dtype=np.int64), none, none)
    return Rows(values, np.ones(count, dtype=np.int64), firsts, lengths)


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """Requests one part after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return plain_rows(np.empty((0, len(SCALARS)), dtype=np.int64))
    return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
