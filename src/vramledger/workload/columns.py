"""Requests by the column: what ten million of them take little room in.

One array a field of `Request`, in order; -1 stands for None. `block_offsets` has one more entry than there are
requests: request `i` owns `block_ids[block_offsets[i]:block_offsets[i + 1]]`. Numbers of parents count from
the start of the whole workload, not of the batch. Imports numpy, so import this module late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vramledger.workload.request import Request, WorkloadHeader

Ints = npt.NDArray[np.int64]
SCALARS = (
    "arrival_ns", "prompt_tokens", "output_tokens", "max_output_tokens", "boundary", "tenant", "conversation",
    "parent", "pause_ns", "branches", "cancel_ns", "first_token_deadline_ns", "deadline_ns", "priority",
)  # fmt: skip
OPTIONAL = frozenset(
    {"max_output_tokens", "conversation", "parent", "cancel_ns", "first_token_deadline_ns", "deadline_ns"}
)
DEFAULTS = {"branches": 1, "pause_ns": 0, "boundary": 0, "tenant": 0, "priority": 0}
BATCH = 65_536


class RequestColumns(NamedTuple):
    """Consecutive requests of a workload, each array of 64-bit whole numbers."""

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    max_output_tokens: Ints
    boundary: Ints
    tenant: Ints
    conversation: Ints
    parent: Ints
    pause_ns: Ints
    branches: Ints
    cancel_ns: Ints
    first_token_deadline_ns: Ints
    deadline_ns: Ints
    priority: Ints
    block_offsets: Ints
    block_ids: Ints

    @property
    def rows(self) -> int:
        """How many requests there are."""
        return len(self.arrival_ns)

    def requests(self) -> Iterator[Request]:
        """The same requests one by one."""
        columns = [getattr(self, name).tolist() for name in SCALARS]
        offsets, ids = self.block_offsets.tolist(), self.block_ids
        for place, values in enumerate(zip(*columns, strict=True)):
            fields: dict[str, Any] = {
                name: None if value < 0 and name in OPTIONAL else value
                for name, value in zip(SCALARS, values, strict=True)
            }
            yield Request(blocks=tuple(ids[offsets[place] : offsets[place + 1]].tolist()), **fields)


def columns_with(
    *, block_offsets: Ints | None = None, block_ids: Ints | None = None, **known: npt.ArrayLike
) -> RequestColumns:
    """Columns with `known` fields; what is not named has the default of `Request`. `arrival_ns` sets the count.

    Raises TypeError on a name that is no field and ValueError on columns of unequal length.
    """
    unknown = known.keys() - set(SCALARS)
    if unknown:
        raise TypeError(f"no such columns: {', '.join(sorted(unknown))}")
    count = len(np.asarray(known["arrival_ns"]))
    full = {
        name: np.ascontiguousarray(known[name], dtype=np.int64)
        if name in known
        else np.full(count, DEFAULTS.get(name, -1), dtype=np.int64)
        for name in SCALARS
    }
    if any(len(values) != count for values in full.values()):
        raise ValueError("columns of unequal length")
    return RequestColumns(
        **full,
        block_offsets=np.zeros(count + 1, dtype=np.int64) if block_offsets is None else block_offsets,
        block_ids=np.empty(0, dtype=np.int64) if block_ids is None else block_ids,
    )


def columns_of(requests: Iterable[Request]) -> RequestColumns:
    """The columns of `requests`."""
    rows = list(requests)
    known = {
        name: [-1 if (value := getattr(row, name)) is None else value for row in rows] for name in SCALARS
    }
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    offsets[1:] = np.cumsum([len(row.blocks) for row in rows])
    ids = np.fromiter((block for row in rows for block in row.blocks), dtype=np.int64)
    return columns_with(block_offsets=offsets, block_ids=ids, **known)


def joined(batches: Iterable[RequestColumns]) -> RequestColumns:
    """Batches in one piece."""
    parts = list(batches)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return columns_of(())
    shifts = np.cumsum([0, *(len(part.block_ids) for part in parts)])
    offsets = [
        part.block_offsets[1:] + shift for part, shift in zip(parts, shifts[:-1].tolist(), strict=True)
    ]
    return RequestColumns(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in SCALARS},
        block_offsets=np.concatenate([np.zeros(1, dtype=np.int64), *offsets]),
        block_ids=np.concatenate([part.block_ids for part in parts]),
    )


class Workload:
    """Requests in order of arrival, in batches that can be gone through again.

    `batches()` starts a new pass: over a file it reads the file again, so that a workload of any length takes
    the room of a batch.
    """

    def __init__(self, header: WorkloadHeader, batches: Callable[[], Iterator[RequestColumns]]) -> None:
        self.header = header
        self.batches = batches

    @classmethod
    def of(cls, header: WorkloadHeader, columns: RequestColumns) -> Workload:
        """A workload that is in memory already."""
        return cls(header, lambda: iter((columns,)))

    def requests(self) -> Iterator[Request]:
        """All requests one by one."""
        for batch in self.batches():
            yield from batch.requests()

    def table(self) -> RequestColumns:
        """All requests in memory."""
        return joined(self.batches())
